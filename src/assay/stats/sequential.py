"""Pass or fail from as few documents as the evidence needs: a sequential test against a threshold.

The test is about the mean score of all N documents of a benchmark. They are asked in random order. After each document,
one portfolio (:mod:`assay.stats.betting`) bets that the mean reaches the threshold, and another that it does not. The
first whose wealth reaches 1/α decides, and the chance of a wrong decision is at most α in each direction, whenever one
looks. When all N are seen, arithmetic decides.

The order must be random and the documents must be given in that order: answers that arrive early are the short ones,
and they are not a fair sample.

A failed document has no score. The portfolio that argues for pass takes it as the worst score, the one that argues for
fail as the best; each is still right then, whatever made the document fail (its wealth only shrinks).
"""

from __future__ import annotations

from array import array
from math import inf, isnan
from typing import TYPE_CHECKING

import numpy as np

from assay.errors import NothingMeasuredError, SpecificationError
from assay.stats.betting import lower_confidence_bound, lower_confidence_sequence
from assay.stats.intervals import Interval
from assay.stats.many import first_crossings
from assay.stats.plans import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.stats.plans import SequentialPlan, Weight

    Floats = NDArray[np.float64]


_LEAST_FOR_A_FORECAST = 8


class SequentialTest:
    """Runs one plan, document by document.

    Example::

        test = SequentialTest(threshold_plan(1319, 0.435, alpha=0.001))
        for document in random_order(1319, seed):
            if test.add(score_of(document)) is not Decision.OPEN:
                break
    """

    def __init__(self, plan: SequentialPlan) -> None:
        self.plan = plan
        self.decision = Decision.OPEN
        self.decided_after: int | None = None
        """After how many documents the decision was made."""
        self.failed = 0
        """How many of the documents seen had no score."""
        self._scores: list[float] = []
        self._weights: list[Weight] = []
        self._portfolio = plan.portfolio(runs=1)
        self._best_wealths = [1.0, 1.0]
        self._wealths = (array("d"), array("d"))

    @property
    def seen(self) -> int:
        """How many documents were added, failed ones included."""
        return len(self._scores)

    def add(self, score: float | None, weight: Weight = 1.0) -> Decision:
        """Take the next document of the random order.

        A decision stays as it is when more documents follow, until all N are seen: then arithmetic has the last word.

        Args:
            score: Its score; None if it failed.
            weight: See :func:`document_weights`; 1 unless the score sought is a weighted one.

        Returns:
            The decision now.

        Raises:
            SpecificationError: The score or weight is not one that the plan allows, or all N were already added.
        """
        plan = self.plan
        if self.seen == plan.population:
            raise SpecificationError(f"all {plan.population} documents of the plan were already added")
        if not 0 < weight < inf:
            raise SpecificationError(f"weight is {weight}; it must be a positive number")
        if weight != 1.0 and plan.resolution is not None:
            raise SpecificationError("weighted scores have no resolution: make the plan without one")
        if score is None:
            self.failed += 1
            evidence = (0.0, 0.0)
        else:
            if isnan(score):
                raise SpecificationError("score is not a number; a document that failed has None")
            plan.check(np.array(score))
            gain = plan.gain(float(score))
            evidence = (gain * float(weight), (1 - gain) * float(weight))
        self._scores.append(float("nan") if score is None else float(score))
        self._weights.append(weight)
        wealths = self._portfolio.advance(np.array(evidence)[:, None])[:, 0].tolist()
        self._best_wealths = [max(pair) for pair in zip(self._best_wealths, wealths, strict=True)]
        for course, wealth in zip(self._wealths, wealths, strict=True):
            course.append(wealth)
        now = self._decide(*wealths)
        if now is not self.decision:
            self.decision, self.decided_after = now, self.seen
        return self.decision

    @property
    def scores(self) -> Floats:
        """The scores seen, in the random order; NaN where one failed."""
        return np.array(self._scores)

    @property
    def weights(self) -> Floats:
        """The weights of the documents seen."""
        return np.array(self._weights, dtype=np.float64)

    @property
    def wealths(self) -> tuple[Floats, Floats]:
        """The wealth of the portfolio for pass and of that for fail, after each document seen."""
        for_pass, for_fail = (np.array(course) for course in self._wealths)
        return for_pass, for_fail

    @property
    def estimate(self) -> float:
        """Mean of the scores seen, each with its weight and divided by the sum of weights: no score of the full run.

        Where the evidence decided when to stop, it is biased away from the threshold: the test stops just when the
        documents seen were clearer than the rest (true mean 0.70, threshold 0.90: 0.63 on average at alpha 0.01).
        :meth:`interval` holds whenever one stops. The estimate is unbiased only if the number of documents was fixed
        beforehand or all were seen, up to a bias of order 1/n where weights differ.

        Raises:
            NothingMeasuredError: No document has a score yet.
        """
        if self.failed == self.seen:
            raise NothingMeasuredError("no document has a score yet")
        scores, weights = self.scores, self.weights
        scored = ~np.isnan(scores)
        return float((scores[scored] * weights[scored]).sum() / weights[scored].sum())

    @property
    def p_values(self) -> tuple[float, float]:
        """Anytime-valid p-values of "should not pass" and of "should not fail": one over the greatest wealth so far.

        The first is small where the evidence is for pass, the second where it is for fail. They may be read at any
        time and shared among checks by Holm's method.
        """
        for_pass, for_fail = (1 / wealth for wealth in self._best_wealths)
        return for_pass, for_fail

    def interval(self) -> Interval:
        """Range for the mean of all N documents, valid now and at every other time at once.

        Its confidence is 1 − 2α, α at each end, or 1 when all documents are seen. It is widened to hold the estimate
        where the last documents contradict the first ones, or where one weighs as much as many; but not across the
        threshold that the last document decided on.
        """
        plan = self.plan
        scores, weights = self.scores, self.weights
        low, high = plan.certain_bounds(scores, self._weights)
        if self.seen == plan.population:
            return Interval(low=low, high=high, confidence=1.0, method="all documents")
        if self.failed < self.seen:
            gains, losses = plan.gains_and_losses(scores, weights)
            gained = lower_confidence_bound(
                gains, plan.population, plan.stakes_for_pass, plan.alpha, whole=plan.right_or_wrong
            )
            lost = lower_confidence_bound(
                losses, plan.population, plan.stakes_for_fail, plan.alpha, whole=plan.right_or_wrong
            )
            worst, best = plan.worst_and_best
            ends = (worst + (best - worst) * gained, best + (worst - best) * lost, self.estimate)
            low, high = max(low, min(ends)), min(high, max(ends))
            if self.decided_after == self.seen:
                is_at_least = plan.satisfied_by(inf) is (self.decision is Decision.PASS)
                low, high = (max(low, plan.threshold), high) if is_at_least else (low, min(high, plan.threshold))
        return Interval(low=low, high=high, confidence=1 - 2 * plan.alpha, method="confidence sequence")

    def forecast(self, runs: int = 200, seed: int = 0) -> int | None:
        """How many more documents will probably decide: the median of simulations.

        Each simulation draws the remaining documents' scores from those seen and from two more, a worst and a best one
        (Laplace's rule of succession), because a dozen right answers do not mean that all are right.

        Args:
            runs: Number of simulations.
            seed: Seed of their random numbers.

        Returns:
            None if fewer than eight documents have scores, which is too few for a forecast.

        Raises:
            NothingMeasuredError: No document has a score yet.
        """
        if self.failed == self.seen:
            raise NothingMeasuredError("no document has a score yet, so there is nothing to forecast from")
        if self.decision is not Decision.OPEN:
            return 0
        if self.seen - self.failed < _LEAST_FOR_A_FORECAST:
            return None
        random = np.random.default_rng(seed)
        scores = np.append(self.scores, self.plan.support)
        weights = np.append(self.weights, [1.0, 1.0])
        chosen = random.integers(scores.size, size=(runs, self.plan.population - self.seen))
        evidence = self.plan.gains_and_losses(scores[chosen], weights[chosen])
        portfolio = self._portfolio.keep(np.repeat([0, 1], runs))
        crossed = first_crossings(portfolio, evidence, 1 / self.plan.alpha)
        return int(np.median(np.minimum(crossed.min(axis=0), chosen.shape[1])))

    def _decide(self, wealth_for_pass: float, wealth_for_fail: float) -> Decision:
        if self.seen == self.plan.population:
            return self.plan.decide_exactly(self.scores, self._weights)
        if self.decision is not Decision.OPEN or self.failed == self.seen:
            return self.decision
        reached = 1 / self.plan.alpha
        if wealth_for_pass >= reached:
            return Decision.PASS
        return Decision.FAIL if wealth_for_fail >= reached else Decision.OPEN


def confidence_sequence(
    plan: SequentialPlan, scores: Sequence[float] | Floats, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Bounds for the mean of all N documents after each of those seen, all valid at once.

    Args:
        plan: The plan; each bound may fail with probability ``plan.alpha``.
        scores: The scores of the documents seen, in the random order; NaN where one failed.
        weights: The documents' weights; None if all count the same.

    Returns:
        Lower and upper bounds, one each a document; neither ever gets worse.

    Raises:
        SpecificationError: A score is not one that the plan allows, or there are more than N.
    """
    if len(scores) > plan.population:
        raise SpecificationError(f"{len(scores)} scores were given for a plan of {plan.population} documents")
    plan.check(np.asarray(scores, dtype=np.float64))
    chosen = np.ones(1) if weights is None else weights
    gains, losses = plan.gains_and_losses(np.asarray(scores, dtype=np.float64), chosen)
    worst, best = plan.worst_and_best
    towards_best = lower_confidence_sequence(
        gains, plan.population, plan.stakes_for_pass, plan.alpha, whole=plan.right_or_wrong
    )
    towards_worst = lower_confidence_sequence(
        losses, plan.population, plan.stakes_for_fail, plan.alpha, whole=plan.right_or_wrong
    )
    ends = (worst + (best - worst) * towards_best, best + (worst - best) * towards_worst)
    return (ends[0], ends[1]) if plan.higher_is_better else (ends[1], ends[0])
