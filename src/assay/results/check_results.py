"""Verdicts and results of checks, as results files hold them; :mod:`assay.checks` makes them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from assay.stats.course import Course  # noqa: TC001 - msgspec resolves the annotations
from assay.stats.intervals import Interval  # noqa: TC001
from assay.types import Check, MetricKeyText  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Sequence


class Verdict(StrEnum):
    """The verdict on a check."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    """The budget was used up before the evidence sufficed."""
    INVALID = "invalid"
    """The check could not be judged: nothing was measured, failed samples could change the verdict, or the baseline
    does not match."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command line when this is the worst verdict of a run."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 3, Verdict.INVALID: 4}[self]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """A check, its verdict, the reason, and the figures behind it."""

    task: str
    metric: MetricKeyText
    min: float | None = None
    max: float | None = None
    baseline: str | None = None
    margin: float | None = None
    value: float | None = None
    """The score over the documents that were judged."""
    verdict: Verdict
    reason: str
    difference: float | None = None
    """Against the baseline: candidate minus baseline."""
    interval: Interval | None = None
    """For the score or, with a baseline, for the difference. After an early stop, from a confidence sequence."""
    p_value: float | None = None
    """After a full run with a baseline: of an exact one-sided McNemar test that the candidate is worse."""
    lost: int | None = None
    """Documents whose score is worse than in the baseline."""
    gained: int | None = None
    n: int = 0
    """How many documents were judged, failed ones included."""
    population: int = 0
    """How many documents the benchmark has, after ``limit``."""
    failed: int = 0
    alpha: float | None = None
    """If part of the documents decided: the greatest chance of a wrong pass, and of a wrong fail. By Holm's method, the
    chance that any of the run's checks is wrong. None if all documents decided."""
    more_needed: int | None = None
    """If inconclusive: how many more documents would probably decide."""

    @property
    def demand(self) -> str:
        """The demand as text."""
        return demand_of(self)


def demand_of(check: Check | CheckResult) -> str:
    """The demand of a check as text."""
    if check.baseline is not None:
        return f"at most {check.margin:g} worse than {check.baseline}"
    return f">= {check.min:g}" if check.min is not None else f"<= {check.max:g}"


class EvidenceCourse(msgspec.Struct, frozen=True, kw_only=True):
    """How the evidence on one check grew."""

    task: str
    metric: str
    demand: str
    """The demand of the check as text."""
    is_difference: bool
    """The figures are differences from a baseline, not scores."""
    decided_after: int | None
    """After how many documents the check's own test decided; None if it did not."""
    decided_together: bool = False
    """It was decided earlier, by Holm's method for all checks together."""
    course: Course


def worst(results: Sequence[CheckResult]) -> Verdict:
    """The verdict on several checks: the worst of theirs; ``invalid`` without checks."""
    return worst_verdict([result.verdict for result in results])


def worst_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst of several verdicts; ``invalid`` without any."""
    if not verdicts:
        return Verdict.INVALID
    order = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE)
    return next((verdict for verdict in order if verdict in verdicts), Verdict.PASS)
