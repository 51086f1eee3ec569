"""What checks came to, as results files hold it; :mod:`assay.checks` judges."""

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
    """What a check came to."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    """The budget ended before the evidence sufficed."""
    INVALID = "invalid"
    """It could not be judged: nothing was measured, failed samples could turn it, or the baseline does not match."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command line when this is the worst verdict of a run."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 3, Verdict.INVALID: 4}[self]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """A check, its verdict, the reason in words, and the figures that it rests on."""

    task: str
    metric: MetricKeyText
    min: float | None = None
    max: float | None = None
    baseline: str | None = None
    margin: float | None = None
    value: float | None = None
    """The score, over the documents that the verdict rests on."""
    verdict: Verdict
    reason: str
    difference: float | None = None
    """Against the baseline: candidate minus baseline."""
    interval: Interval | None = None
    """For the score, or for the difference where there is a baseline. After an early stop a confidence sequence's."""
    p_value: float | None = None
    """Against the baseline, after a full run: of an exact one-sided McNemar test that the candidate is worse."""
    lost: int | None = None
    """Documents whose score is worse than in the baseline."""
    gained: int | None = None
    n: int = 0
    """Documents that the verdict rests on, failed ones included."""
    population: int = 0
    """Documents of the whole benchmark (as far as ``limit`` leaves it)."""
    failed: int = 0
    alpha: float | None = None
    """Where some of the documents decided: the greatest chance of a wrong pass, and of a wrong fail; by Holm's method,
    that any of the run's checks is wrong so. None where all decided."""
    more_needed: int | None = None
    """Where inconclusive: how many more documents would probably decide."""

    @property
    def demand(self) -> str:
        """What was demanded, in words."""
        return demand_of(self)


def demand_of(check: Check | CheckResult) -> str:
    """What a check demands, in words."""
    if check.baseline is not None:
        return f"at most {check.margin:g} worse than {check.baseline}"
    return f">= {check.min:g}" if check.min is not None else f"<= {check.max:g}"


class EvidenceCourse(msgspec.Struct, frozen=True, kw_only=True):
    """How the evidence on one check grew."""

    task: str
    metric: str
    demand: str
    """What the check demands, in words."""
    is_difference: bool
    """The figures are differences from a baseline, not scores."""
    decided_after: int | None
    """Documents after which the check's own test decided."""
    decided_together: bool = False
    """It was decided before that, with the other checks together: by Holm's method."""
    course: Course


def worst(results: Sequence[CheckResult]) -> Verdict:
    """A run passes if all its checks do, and fails if one certainly does; without checks it is not judged."""
    if not results:
        return Verdict.INVALID
    verdicts = {result.verdict for result in results}
    order = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE)
    return next((verdict for verdict in order if verdict in verdicts), Verdict.PASS)
