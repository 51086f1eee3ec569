"""Triage: did a run score low because of the model or because of the harness? See docs/triage.md.

The package may import ``checks``, ``rescoring``, ``runs`` and what stands below them.
"""

from assay.diagnosis.causes import TITLES, Cause
from assay.diagnosis.findings import Confidence, Example, Finding, Triage
from assay.diagnosis.run import explain_scores, needs_explanation, triage, triage_samples

__all__ = [
    "TITLES",
    "Cause",
    "Confidence",
    "Example",
    "Finding",
    "Triage",
    "explain_scores",
    "needs_explanation",
    "triage",
    "triage_samples",
]
