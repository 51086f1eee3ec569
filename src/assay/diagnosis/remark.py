"""A triage in one line, for the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay._util.text import printable

if TYPE_CHECKING:
    from assay.diagnosis.findings import Triage

_LENGTH = 600


def triage_remark(triage: Triage) -> str | None:
    """One line for the end of a run, if there is anything to tell: a cause or certain fault, and how to see more."""
    if not (triage.causes or triage.faults or triage.unmet_checks):
        return None
    return f"triage: {printable(triage.headline, _LENGTH)}; more: assay triage {triage.run}"
