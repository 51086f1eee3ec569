"""Verdicts on scores: thresholds, baselines, early stopping.

``verdicts`` reads, validates and judges checks. ``scope`` says which documents a check covers. ``planned`` prepares a
run's checks before the first request and judges them after the last answer. ``against_baseline`` compares a full run
with an earlier one. ``early_stopping`` ends a run once every check is decided: each is a ``sequential`` check that
reads each document's score from ``live_scores``. The package may import ``runs`` and what stands below it.
"""
