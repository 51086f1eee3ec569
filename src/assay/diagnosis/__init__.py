"""Why a run scored low: the model, or the harness? See docs/triage.md.

It may import ``checks``, ``rescoring``, ``runs`` and what stands below them.
"""

from assay.diagnosis.findings import TITLES, Cause, Confidence, Example, Finding, Triage
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
