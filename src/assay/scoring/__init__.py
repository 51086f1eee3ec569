"""From responses to scores: lm-eval's own filters, metrics and aggregation, outcomes, and intervals beside its values.

What a score is belongs here; how it is written to disk belongs in ``results``. It may import ``tasks``, ``stats`` and
what stands below them.
"""
