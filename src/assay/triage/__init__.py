"""Why a run scored low: the model, or the harness? See docs/triage.md."""

from assay.triage.findings import TITLES, Cause, Confidence, Example, Finding, Triage
from assay.triage.triage import explain_scores, needs_explanation, triage, triage_run

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
    "triage_run",
]
