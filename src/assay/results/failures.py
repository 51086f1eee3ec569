"""What to do about samples and requests that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.types import FailureCause


def what_to_do(causes: Sequence[FailureCause]) -> str:
    """What to do about failures, in one line.

    Args:
        causes: the cause of each failure; at least one.
    """
    lasting = sum(not cause.is_transient for cause in causes)
    if not lasting:
        return "run the same command again to ask only these"
    if lasting == len(causes):
        return "asking again does not help: fix what the messages name first, then run the same command again"
    return (
        f"run the same command again to ask only these; {lasting} of them fail again unless you first fix what the "
        "messages name"
    )
