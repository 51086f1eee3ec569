"""Betting against a mean: the wealth process beneath the sequential tests.

A population of N values, none below zero, is drawn one by one in random order without replacement. The claim to be
tested says that its mean is at most ``null``. Then the next value's expectation, given the sum S of those already seen,
is at most

    m_t = (N·null − S) / (N − t + 1).

A gambler who stakes a share c of the wealth on the next value x gets back the factor 1 − c + c·x/m_t. If the claim is
true this bet is fair or worse, so the wealth is a non-negative supermartingale and, by Ville's inequality, ever reaches
1/α with probability at most α, however often one looks. Wealth is evidence against the claim.

Which stake is best depends on the unknown truth, so the wealth is spread over a portfolio of gamblers, each with its
own constant stake: an average of supermartingales is one again, and it grows nearly as fast as the best of them.

Sources: Waudby-Smith and Ramdas (2023), "Estimating means of bounded random variables by betting", JRSS-B 86:1
(sampling without replacement; portfolios of constant bets, there called diversified Kelly); Stark (2023), "ALPHA: audit
that learns from previously hand-audited ballots", Ann. Appl. Stat. 17:641. For right-or-wrong values a stake c is ALPHA
with the alternative η_t = m_t + c·(1 − m_t).
"""

from __future__ import annotations

from copy import copy
from math import log
from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LOGITS = np.linspace(-4.0, 4.0, 24)
_SHARES = 1 / (1 + np.exp(-_LOGITS))
"""The gamblers' stakes, 0.018 to 0.982: never all, so that one surprise ruins nobody."""
_EVERYWHERE = 0.07
"""Share of the initial wealth spread evenly, so that no stake is forgotten."""
_ROUNDING = 1e-9
"""Added to the claimed mean: far above the rounding error of a sum of scores, far below anything of interest."""
_PRECISION = 1e-6
"""Of a confidence bound, relative to it."""
BLOCK = 64
"""How many values of many runs, or many nulls of one run, are looked at together."""


class Stakes(msgspec.Struct, frozen=True):
    """How the initial wealth of 1 is divided among the gamblers.

    Any division is valid; it only decides which truths are found out fastest.
    """

    weights: tuple[float, ...]
    """Wealth of each gambler, the most careful first; they sum to 1."""


def score_stakes(room: float) -> Stakes:
    """Stakes for the mean of scores in [0, 1].

    The best stake against right-or-wrong scores of true mean μ is (μ − null)/(1 − null): the gap over the room that
    there is for one. The gaps worth finding early are some 5 to 30 points whatever the room, which makes large stakes
    likelier where there is little room.

    Args:
        room: 1 − null, the largest gap possible.
    """
    return _bell(centre=-0.4 + 0.5 * log(0.5 / max(room, 1e-3)), spread=0.8)


def difference_stakes() -> Stakes:
    """Stakes for the mean of paired differences, moved from [−1, 1] to [0, 1].

    Most differences between two runs of one benchmark are 0, so their variance is small and bold stakes are best:
    about margin/(share of answers that flipped).
    """
    return _bell(centre=0.4, spread=0.8)


def _bell(centre: float, spread: float) -> Stakes:
    bell = np.exp(-0.5 * ((_LOGITS - centre) / spread) ** 2)
    weights = (1 - _EVERYWHERE) * bell / bell.sum() + _EVERYWHERE / _LOGITS.size
    return Stakes(weights=tuple(weights.tolist()))


class Portfolio:
    """Wealth won by betting against "the mean of the population is at most ``null``", in many runs side by side."""

    def __init__(self, population: int, nulls: Floats, stakes: Stakes) -> None:
        """Begin with a wealth of 1.

        Args:
            population: N.
            nulls: Shape (runs,): the mean claimed in each run.
            stakes: How the gamblers share it.
        """
        self._population = population
        self._claimed_totals = population * (nulls[:, None] + _ROUNDING)
        self._seen = 0
        self._sums = np.zeros(nulls.size)
        self._wealths = np.tile(stakes.weights, (nulls.size, 1))

    def advance(self, values: Floats) -> Floats:
        """Bet on the next values.

        Args:
            values: Shape (runs, b): in each run the b values that follow those already seen; none below 0.

        Returns:
            Shape (runs, b): the wealth after each value; infinite once the claim is impossible. A wealth beyond the
            range of floating-point numbers is rounded to 0 or infinity: to 0 is on the safe side, and infinity is far
            beyond any bar.
        """
        unseen = self._population - self._seen - np.arange(values.shape[1])
        sums = self._sums[:, None] + np.cumsum(values, axis=1)
        means = (self._claimed_totals - (sums - values)) / unseen
        gains = values / np.where(means > 0, means, 1.0) - 1
        wealths = np.empty_like(gains)
        with np.errstate(over="ignore", under="ignore"):
            for step in range(values.shape[1]):
                self._wealths = self._wealths * (1 + gains[:, step, None] * _SHARES)
                wealths[:, step] = self._wealths.sum(axis=1)
        self._seen += values.shape[1]
        self._sums = sums[:, -1]
        return np.where(sums > self._claimed_totals, np.inf, wealths)

    def beside(self, other: Portfolio) -> Portfolio:
        """The runs of this portfolio followed by those of another on the same population, at the same point."""
        both = copy(self)
        both._claimed_totals = np.concatenate([self._claimed_totals, other._claimed_totals])
        both._sums = np.concatenate([self._sums, other._sums])
        both._wealths = np.concatenate([self._wealths, other._wealths])
        return both

    def keep(self, runs: NDArray[np.bool_] | NDArray[np.intp]) -> Portfolio:
        """Go on with the runs chosen by a mask or by (repeatable) indices; this portfolio stays as it is."""
        kept = copy(self)
        kept._claimed_totals = self._claimed_totals[runs]
        kept._sums = self._sums[runs]
        kept._wealths = self._wealths[runs]
        return kept


def lower_confidence_bound(values: Floats, population: int, stakes: Stakes, alpha: float) -> float:
    """Lower bound for the population's mean that holds at all sample sizes at once with probability 1 − α.

    The bound is the largest null whose portfolio ever reached 1/α on the way (the running intersection of Waudby-Smith
    and Ramdas 2023). All nulls use the same stakes, so the wealth falls as null grows and a search finds it.

    Args:
        values: Shape (n,): the values seen, in the order drawn; none below 0.
        population: N.
        stakes: The portfolio.
        alpha: One-sided error rate.

    Returns:
        The bound, in the units of the values; at least (sum seen)/N.
    """
    certain = float(values.sum()) / population
    low, high = certain, float(values.sum() + (population - values.size) * values.max()) / population
    while high - low > _PRECISION * max(high, _PRECISION):
        nulls = np.linspace(low, high, BLOCK + 1)[1:]
        wealths = Portfolio(population, nulls, stakes).advance(np.tile(values, (BLOCK, 1)))
        rejected = int(np.count_nonzero(wealths.max(axis=1) >= 1 / alpha))
        if rejected == BLOCK:
            return high
        low, high = (low if not rejected else float(nulls[rejected - 1])), float(nulls[rejected])
    return low


def lower_confidence_sequence(values: Floats, population: int, stakes: Stakes, alpha: float, grid: int = 400) -> Floats:
    """:func:`lower_confidence_bound` after each value, for values in [0, 1]; rounded down to 1/``grid``.

    Args:
        values: Shape (n,): the values seen, in the order drawn.
        population: N.
        stakes: The portfolio.
        alpha: One-sided error rate.
        grid: How many nulls between 0 and 1 are tried.

    Returns:
        Shape (n,); never falls.
    """
    nulls = np.arange(grid) / grid
    portfolio = Portfolio(population, nulls, stakes)
    bounds = np.cumsum(values) / population
    highest = 0.0
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        rejected = portfolio.advance(np.tile(block, (grid, 1))) >= 1 / alpha
        reached = np.maximum.accumulate(np.where(rejected, nulls[:, None], 0.0).max(axis=0))
        bounds[start : start + BLOCK] = np.maximum(bounds[start : start + BLOCK], np.maximum(reached, highest))
        highest = max(highest, float(reached[-1]))
    return bounds
