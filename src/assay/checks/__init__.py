"""Verdicts on scores: thresholds, baselines, early stopping.

``verdicts`` holds what a check may demand and what came of it, ``scope`` which documents it looks at, ``planned`` a
run's checks before the first request and after the last answer, ``against_baseline`` how a full run is judged by an
earlier one. ``early_stopping`` ends a run once all are decided: each is a ``sequential`` check, followed document by
document with the scores that ``live_scores`` gives. It may import ``runs`` and what stands below it.
"""
