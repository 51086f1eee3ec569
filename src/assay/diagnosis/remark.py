"""A triage in one line, for the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay._util.text import printable

if TYPE_CHECKING:
    from assay.diagnosis.findings import Triage

_LENGTH = 600


def triage_remark(triage: Triage) -> str | None:
    """The headline and how to see more, in one line; None if there is no cause, certain fault or unmet check."""
    if not (triage.causes or triage.faults or triage.unmet_checks):
        return None
    return f"triage: {printable(triage.headline, _LENGTH)}; more: assay triage {triage.run}"
