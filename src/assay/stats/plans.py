"""What a sequential test is to decide: plans for thresholds and for margins, and the arithmetic that a plan implies."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from fractions import Fraction
from math import ceil, inf, isnan
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from assay.errors import SpecificationError
from assay.stats.betting import Portfolio, Stakes, difference_stakes, score_stakes
from assay.stats.validate import Support, count, probability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Weight = float | Fraction
    FloatOrFloats = TypeVar("FloatOrFloats", float, Floats)


class Decision(StrEnum):
    """What the evidence says so far."""

    OPEN = "open"
    """Not decided yet."""
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    UNDECIDABLE = "undecidable"
    """All documents were asked, and what the failed ones would have scored could change the decision."""


class SequentialPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be decided, and how surely. Made by :func:`threshold_plan` or :func:`margin_plan`."""

    population: int
    """N: how many documents there are in all."""
    threshold: float
    """Pass means: the mean over all N is at least this (at most, where lower is better)."""
    alpha: float
    """Greatest chance of a wrong pass, and of a wrong fail."""
    support: Support
    """Least and greatest possible score."""
    higher_is_better: bool
    resolution: float | None
    """All scores are multiples of this (1 for right-or-wrong); None if nothing is known. Makes the test a little
    sharper on small benchmarks: a mean just short of the threshold is then a whole document short."""
    stakes_for_pass: Stakes
    stakes_for_fail: Stakes

    @property
    def worst_and_best(self) -> Support:
        """The two ends of ``support``, the undesirable one first."""
        return self.support if self.higher_is_better else (self.support[1], self.support[0])

    @property
    def right_or_wrong(self) -> bool:
        """Whether every score is one of the two ends of ``support``."""
        low, high = self.support
        return self.resolution == high - low

    def satisfied_by(self, mean: float) -> bool:
        """Whether a mean over all N documents passes."""
        return mean >= self.threshold if self.higher_is_better else mean <= self.threshold

    def check(self, scores: Floats) -> None:
        """Make sure that all scores lie in the support and are multiples of the resolution (NaN: missing).

        Raises:
            SpecificationError: One does not; the tests would be wrong about their error rates.
        """
        low, high = self.support
        if ((scores < low) | (scores > high)).any():
            raise SpecificationError(
                f"scores from {np.nanmin(scores):g} to {np.nanmax(scores):g} were given; they must lie between "
                f"{low:g} and {high:g}"
            )
        if self.resolution is not None and (np.remainder(scores, self.resolution) > 0).any():
            raise SpecificationError(f"a score is not a multiple of {self.resolution:g}, the resolution of the plan")

    def gain(self, score: FloatOrFloats) -> FloatOrFloats:
        """How far a score is from the worst, as a share of the support: 0 to 1. The rest, 1 − gain, is its loss."""
        worst, best = self.worst_and_best
        return (score - worst) / (best - worst)

    def gains_and_losses(self, scores: Floats, weights: Floats) -> Floats:
        """Shape (2, …): weighted gains and losses; both 0 for a missing score (NaN), no evidence either way."""
        gains = self.gain(scores)
        return np.nan_to_num(np.stack([gains, 1 - gains]) * weights)

    def portfolio(self, runs: int, alpha: float | None = None) -> Portfolio:
        """First ``runs`` rows that bet on gains, against every mean that does not pass; then as many on losses.

        Args:
            runs: How many of each.
            alpha: Error rate; the plan's own if None.
        """
        bar = 1 / (self.alpha if alpha is None else alpha) if self.right_or_wrong else inf
        unsatisfying, satisfying = self._bounding_means()
        on_gains = Portfolio(self.population, np.full(runs, self.gain(unsatisfying)), self.stakes_for_pass, bar)
        on_losses = Portfolio(self.population, np.full(runs, 1 - self.gain(satisfying)), self.stakes_for_fail, bar)
        return on_gains.beside(on_losses)

    def certain_bounds(self, scores: Floats, weights: Sequence[Weight]) -> Support:
        """Least and greatest mean over all N that the scores seen (NaN: missing) leave possible.

        In exact arithmetic, rounded once at its end to the nearest float: neither the order of the scores nor a missing
        one nor a weight such as 4/3 can turn a comparison round, and a mean that equals the threshold meets it.
        """
        alike = Counter(zip(scores.tolist(), weights, strict=True))
        total = seen = missing = Fraction(0)
        for (score, weight), times in alike.items():
            share = Fraction(weight) * times
            seen += share
            if isnan(score):
                missing += share
            else:
                total += Fraction(score) * share
        unknown = missing if scores.size == self.population else missing + self.population - seen
        low, high = (float((total + unknown * Fraction(bound)) / self.population) for bound in self.support)
        return low, high

    def decide_exactly(self, scores: Floats, weights: Sequence[Weight]) -> Decision:
        """The decision once all N documents were asked, by arithmetic (NaN: missing)."""
        low, high = self.certain_bounds(scores, weights)
        if self.satisfied_by(low) != self.satisfied_by(high) or np.isnan(scores).all():
            return Decision.UNDECIDABLE
        return Decision.PASS if self.satisfied_by(low) else Decision.FAIL

    def _bounding_means(self) -> tuple[float, float]:
        """The best mean that does not pass and the worst that does; both the threshold if nothing else is known."""
        if self.resolution is None:
            return self.threshold, self.threshold
        n, sign = self.population, 1 if self.higher_is_better else -1
        unit = sign * self.resolution
        steps = ceil(self.threshold * n / unit)
        # The products above are rounded and must agree with the final comparison, which is of quotients.
        while self.satisfied_by((steps - 1) * unit / n):
            steps -= 1
        while not self.satisfied_by(steps * unit / n):
            steps += 1
        return (steps - 1) * unit / n, steps * unit / n


def threshold_plan(
    population: int,
    threshold: float,
    alpha: float = 0.01,
    *,
    support: Support = (0.0, 1.0),
    higher_is_better: bool = True,
    resolution: float | None = None,
) -> SequentialPlan:
    """Plan to decide whether the mean score of a benchmark reaches a threshold.

    Args:
        population: N, the number of documents of the benchmark.
        threshold: The least mean that passes (the greatest, where lower is better).
        alpha: Error rate in each direction.
        support: Least and greatest possible score of a document.
        higher_is_better: False for error rates and the like.
        resolution: All scores are multiples of this; 1 for right-or-wrong scores.

    Raises:
        SpecificationError: A value is out of range.
    """
    share = (_checked_threshold(threshold, support) - support[0]) / (support[1] - support[0])
    room_above = 1 - share if higher_is_better else share
    return _plan(
        population=population,
        threshold=threshold,
        alpha=alpha,
        support=support,
        higher_is_better=higher_is_better,
        resolution=resolution,
        stakes=(score_stakes(room_above), score_stakes(1 - room_above)),
    )


def margin_plan(
    population: int,
    margin: float,
    alpha: float = 0.01,
    *,
    largest: float = 1.0,
    higher_is_better: bool = True,
    resolution: float | None = None,
) -> SequentialPlan:
    """Plan to decide whether a candidate is worse than its baseline by more than a margin (non-inferiority).

    The values to be given are the paired differences, candidate minus baseline, document by document. Pass means that
    their mean over all N is at least −margin (at most +margin, where lower is better).

    Args:
        population: N, the number of paired documents.
        margin: The greatest loss that still passes, as a positive number.
        alpha: Error rate in each direction.
        largest: The greatest possible difference: 1 for scores in [0, 1].
        higher_is_better: False for error rates and the like.
        resolution: All differences are multiples of this; 1 for right-or-wrong scores.

    Raises:
        SpecificationError: A value is out of range.
    """
    if not 0 <= margin <= largest:
        raise SpecificationError(f"margin is {margin}; it is the greatest loss allowed, from 0 to {largest:g}")
    return _plan(
        population=population,
        threshold=-margin if higher_is_better else margin,
        alpha=alpha,
        support=(-largest, largest),
        higher_is_better=higher_is_better,
        resolution=resolution,
        stakes=(difference_stakes(), difference_stakes()),
    )


def _plan(
    population: int,
    threshold: float,
    alpha: float,
    support: Support,
    higher_is_better: bool,
    resolution: float | None,
    stakes: tuple[Stakes, Stakes],
) -> SequentialPlan:
    if resolution is not None and not resolution > 0:
        raise SpecificationError(f"resolution is {resolution}; it must be positive")
    return SequentialPlan(
        population=count("population", population, least=1),
        threshold=_checked_threshold(threshold, support),
        alpha=probability("alpha", alpha),
        support=support,
        higher_is_better=higher_is_better,
        resolution=resolution,
        stakes_for_pass=stakes[0],
        stakes_for_fail=stakes[1],
    )


def _checked_threshold(threshold: float, support: Support) -> float:
    if not support[0] < support[1]:
        raise SpecificationError(f"scores from {support[0]:g} to {support[1]:g} leave nothing to test")
    if not support[0] <= threshold <= support[1]:
        raise SpecificationError(f"threshold {threshold} does not lie between {support[0]:g} and {support[1]:g}")
    return threshold
