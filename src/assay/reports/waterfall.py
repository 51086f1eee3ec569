"""A triage's waterfall step by step, for the terminal and the page: from the score to what it should be."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from assay.diagnosis.findings import LossReference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.diagnosis.findings import Waterfall

_TARGETS = {
    LossReference.BASELINE: "the baseline's score",
    LossReference.CHECK: "what the check demands",
    LossReference.FULL: "the full score",
}


class StepKind(StrEnum):
    """What a step is."""

    SCORE = "score"
    MEASURED = "measured"
    ESTIMATED = "estimated"
    UNEXPLAINED = "unexplained"
    TARGET = "target"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    kind: StepKind
    figure: str
    words: str
    start: float
    """The score before it; 0 for the two scores at the ends."""
    end: float
    """The score after it."""
    low: float | None = None
    """The score after it at the low end of its interval; None if it has none."""
    high: float | None = None

    def drawn(self, low: float, high: float) -> tuple[float, float]:
        """Where its bar begins and how wide it is, as shares of the axis from `low` to `high`."""
        left, right = sorted((self.start, self.end))
        return (left - low) / (high - low), (right - left) / (high - low)


def steps(waterfall: Waterfall | None) -> list[Step]:
    """The score, each cause, what is unexplained, the target; none if no cause has a share."""
    return [] if waterfall is None or not waterfall.shares else [*_steps(waterfall)]


def bounds(drawn: list[Step]) -> tuple[float, float]:
    """The axis that holds all steps, their intervals, and 0."""
    ends = [end for step in drawn for end in (step.start, step.end, step.low, step.high) if end is not None]
    low, high = min(0.0, *ends), max(0.0, *ends)
    return low, high if high > low else low + 1.0


def _steps(waterfall: Waterfall) -> Iterator[Step]:
    at = waterfall.score
    yield Step(kind=StepKind.SCORE, figure=f"{at:.4f}", words="score", start=0.0, end=at)
    for share in waterfall.shares:
        kind = StepKind.MEASURED if share.is_measured else StepKind.ESTIMATED
        yield Step(
            kind=kind,
            figure=f"{share.gain:+.4f}",
            words=f"{share.title} ({kind}, {share.low:.4f} to {share.high:.4f})",
            start=at,
            end=at + share.gain,
            low=at + share.low,
            high=at + share.high,
        )
        at += share.gain
    missing = waterfall.unexplained
    yield Step(kind=StepKind.UNEXPLAINED, figure=f"{missing:+.4f}", words="unexplained", start=at, end=at + missing)
    target, words = waterfall.target, _TARGETS[waterfall.target_is]
    yield Step(kind=StepKind.TARGET, figure=f"{target:.4f}", words=words, start=0.0, end=target)
