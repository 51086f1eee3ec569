"""What decides whether scores are as demanded, and the gates that are made of such checks.

A check on its own: ``verdicts`` holds what it may demand and what it came to, ``scope`` which documents it looks at,
``against_baseline`` how a full run is judged by an earlier one. A run's checks: ``checks`` refuses them before the
first request and judges them after the last answer; ``early`` stops a run when all are decided, each ``followed``
document by document, with the scores that ``live_scores`` gives. A gate: ``policy`` reads its file, ``run`` runs it,
``explain`` says beforehand what it can see, ``calibrate`` measures how much a server differs from itself.
"""
