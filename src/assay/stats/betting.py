"""Betting against a mean: the wealth process beneath the sequential tests.

A population of N values, none below zero, is drawn one by one in random order without replacement. The claim to be
tested says that its mean is at most ``null``. Then the next value's expectation, given the sum S of those already seen,
is at most

    m_t = (N·null − S) / (N − t + 1).

A gambler who stakes a share c of the wealth on the next value x gets back the factor 1 − c + c·x/m_t. If c is
chosen between 0 and 1 before x is seen, by any rule, and the claim is true, then the expected factor is at most 1,
whatever was drawn before: E[1 − c + c·x/m_t] = 1 − c + c·E[x]/m_t ≤ 1. So the wealth is a non-negative supermartingale
and, by Ville's inequality, ever reaches 1/α with probability at most α, however often one looks. Wealth is evidence
against the claim.

Which stake is best depends on the unknown truth, so the wealth is spread over a portfolio of gamblers: an average of
supermartingales is one again, and it grows nearly as fast as the best of them. Two rules for the stakes use what is
known before each bet, and so keep this true:

- *Growing stakes.* Without replacement the best stake against right-or-wrong values of true mean μ is not constant.
  With L = N·(1 − null) wrong values in all if the claim just holds, l of which were seen, it is c·L/(L − l), at most 1,
  where c = (μ − null)/(1 − null). The gambler's wealth is then the likelihood ratio of N·μ right values among N against
  N·null: of two hypergeometric distributions.
- *No more than the bar.* Wealth beyond the bar of 1/α is of no use. So where a right value would take the portfolio
  beyond it, all stakes are cut by one factor so that it would just be reached, and a wrong value costs less. This is
  done where all values are known to be 0 or 1; of graded ones none might take the wealth to the bar.

Sources: Waudby-Smith and Ramdas (2023), "Estimating means of bounded random variables by betting", JRSS-B 86:1
(sampling without replacement; portfolios of constant bets, there called diversified Kelly); Stark (2023), "ALPHA: audit
that learns from previously hand-audited ballots", Ann. Appl. Stat. 17:641 (a stake c is ALPHA with the alternative
η_t = m_t + c·(1 − m_t)); Wald (1945), "Sequential tests of statistical hypotheses", Ann. Math. Stat. 16:117; Fischer
and Ramdas (2024), "Improving Wald's (approximate) sequential probability ratio test by avoiding overshoot",
arXiv 2410.16076 (what is beyond the bar put to use).
"""

from __future__ import annotations

from copy import copy
from math import inf, isfinite, log
from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LOGITS = np.append(np.linspace(-4.0, 4.0, 24), 7.0)
_SHARES = 1 / (1 + np.exp(-_LOGITS))
"""The gamblers' stakes at the beginning, 0.018 to 0.982, and one of 0.999 for the case that nothing contradicts it."""
_EVERYWHERE = 0.07
"""Share of the initial wealth spread evenly, so that no stake is forgotten."""
_EVERYWHERE_SCORES = 0.01
_NEAR = (0.065, 0.35, 0.34, 0.337)
_FAR = (0.218, 0.75, 0.37, 0.511)
"""Where most wealth goes: the gap between truth and threshold, the greatest stake for it, its spread, the share."""
_BEYOND_THE_BAR = 1e-9
"""By how much, relative to the bar, a cut stake still exceeds it: rounding must not keep the wealth below."""
_ROUNDING = 1e-9
"""Added to the claimed mean: far above the rounding error of a sum of scores, far below anything of interest."""
_PRECISION = 1e-6
"""Of a confidence bound, relative to it."""
BLOCK = 64
"""How many values of many runs, or nulls of one run, are processed together."""


class Stakes(msgspec.Struct, frozen=True):
    """How the initial wealth of 1 is divided among the gamblers.

    Any division is valid; it only decides which truths are found fastest.
    """

    weights: tuple[float, ...]
    """Wealth of each gambler, the most careful first; they sum to 1."""
    grow: bool = False
    """Stakes grow as the values that contradict the bet are used up; else they are constant."""


def score_stakes(room: float) -> Stakes:
    """Stakes for the mean of scores in [0, 1].

    The best stake against right-or-wrong scores of true mean μ is (μ − null)/(1 − null): the gap over the room that
    there is for one. Wealth that is spread over all gaps is thin everywhere, so most of it is for three: some 6 points,
    which take hundreds of documents, some 22, which take dozens, and the greatest, where all answers are alike. A gap
    between two of them is found out by both. Where there is little room the gaps are smaller.

    Args:
        room: 1 − null, the largest gap possible.
    """
    room = max(room, 1e-3)
    weights = np.full(_SHARES.size, _EVERYWHERE_SCORES / _SHARES.size)
    for gap, most, spread, share in (_NEAR, _FAR):
        weights += share * _bell(_logit(min(gap / room, most)), spread)
    weights[-1] += 1 - weights.sum()
    return Stakes(weights=tuple(weights.tolist()), grow=True)


def difference_stakes() -> Stakes:
    """Stakes for the mean of paired differences, moved from [−1, 1] to [0, 1].

    Most differences between two runs of one benchmark are 0, so their variance is small and bold stakes are best:
    about margin/(share of answers that flipped).
    """
    weights = (1 - _EVERYWHERE) * _bell(centre=0.4, spread=0.8) + _EVERYWHERE / _SHARES.size
    return Stakes(weights=tuple(weights.tolist()))


def _bell(centre: float, spread: float) -> Floats:
    """Shares of wealth around a stake, given as a logit; they sum to 1."""
    bell = np.exp(-0.5 * ((_LOGITS - centre) / spread) ** 2)
    shares: Floats = bell / bell.sum()
    return shares


def _logit(share: float) -> float:
    return log(share / (1 - share))


class Portfolio:
    """Wealth won by betting against "the mean of the population is at most ``null``", in many runs side by side."""

    def __init__(self, population: int, nulls: Floats, stakes: Stakes, bar: float = inf) -> None:
        """Begin with a wealth of 1.

        Args:
            population: N.
            nulls: Shape (runs,): the mean claimed in each run.
            stakes: How the gamblers share it.
            bar: Where all values are 0 or 1: the wealth that decides, 1/α, beyond which nothing is sought.
        """
        self._population = population
        self._grow = np.full((nulls.size, 1), stakes.grow)
        self._aim = bar * (1 + _BEYOND_THE_BAR)
        self._claimed_totals = population * (nulls[:, None] + _ROUNDING)
        self._seen = 0
        self._sums = np.zeros(nulls.size)
        self._wealths = np.tile(stakes.weights, (nulls.size, 1))

    def advance(self, values: Floats) -> Floats:
        """Bet on the next values.

        Args:
            values: Shape (runs, b): in each run the b values that follow those already seen; none below 0; a
                missing one is 0.

        Returns:
            Shape (runs, b): the wealth after each value; infinite once the claim is impossible. A wealth beyond the
            range of floating-point numbers is rounded to 0 or infinity: to 0 is on the safe side, and infinity is far
            beyond any bar.
        """
        unseen = self._population - self._seen - np.arange(values.shape[1])
        sums = self._sums[:, None] + np.cumsum(values, axis=1)
        left = self._claimed_totals - (sums - values)
        means = np.where(left > 0, left / unseen, 1.0)
        gains = values / means - 1
        growth = self._growth(unseen - left)
        wealths = np.empty_like(gains)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for step in range(values.shape[1]):
                stakes = np.minimum(_SHARES * growth[:, step, None], 1.0)
                if isfinite(self._aim):
                    stakes = stakes * self._cut(stakes, 1 / means[:, step] - 1)[:, None]
                self._wealths = self._wealths * (1 + gains[:, step, None] * stakes)
                wealths[:, step] = self._wealths.sum(axis=1)
        self._seen += values.shape[1]
        self._sums = sums[:, -1]
        return np.where(sums > self._claimed_totals, np.inf, wealths)

    def _growth(self, wrong_left: Floats) -> Floats:
        """By what stakes are multiplied: 1, or L/(L − l); shape as ``wrong_left``, the L − l that the claim leaves."""
        wrong = self._population - self._claimed_totals
        growth = np.clip(wrong / np.where(wrong_left > 0, wrong_left, 1.0), 0.0, 1 / _SHARES[0])
        return np.where(self._grow, np.where(wrong_left > 0, growth, 1 / _SHARES[0]), 1.0)

    def _cut(self, stakes: Floats, odds: Floats) -> Floats:
        """The factor for each run's stakes with which a right value reaches the bar and no more; at most 1."""
        wanted = self._aim - self._wealths.sum(axis=1)
        won = (self._wealths * stakes).sum(axis=1) * odds
        cut = np.clip(wanted / np.where(won > 0, won, 1.0), 0.0, 1.0)
        return np.where(won > wanted, cut, 1.0)

    def beside(self, other: Portfolio) -> Portfolio:
        """The runs of this portfolio followed by those of another on the same population, at the same point."""
        both = copy(self)
        both._claimed_totals = np.concatenate([self._claimed_totals, other._claimed_totals])
        both._grow = np.concatenate([self._grow, other._grow])
        both._sums = np.concatenate([self._sums, other._sums])
        both._wealths = np.concatenate([self._wealths, other._wealths])
        return both

    def keep(self, runs: NDArray[np.bool_] | NDArray[np.intp]) -> Portfolio:
        """Go on with the runs chosen by a mask or by (repeatable) indices; this portfolio stays as it is."""
        kept = copy(self)
        kept._claimed_totals = self._claimed_totals[runs]
        kept._grow = self._grow[runs]
        kept._sums = self._sums[runs]
        kept._wealths = self._wealths[runs]
        return kept


def lower_confidence_bound(
    values: Floats, population: int, stakes: Stakes, alpha: float, *, whole: bool = False
) -> float:
    """Lower bound for the population's mean that holds at all sample sizes at once with probability 1 − α.

    The bound is the least null whose portfolio never reached 1/α on the way (the running intersection of Waudby-Smith
    and Ramdas 2023). All nulls use the same stakes, so that the wealth falls as null grows, and a search finds it.

    Args:
        values: Shape (n,): the values seen, in the order drawn; none below 0, which is also what a missing one counts.
        population: N.
        stakes: The portfolio.
        alpha: One-sided error rate.
        whole: All values are 0 or 1.

    Returns:
        The bound, in the units of the values; at least (sum seen)/N.
    """
    bar = 1 / alpha if whole else inf
    total = float(values.sum())
    low, high = total / population, (total + (population - values.size) * float(values.max())) / population
    while high - low > _PRECISION * max(high, _PRECISION):
        nulls = np.linspace(low, high, BLOCK + 1)[1:]
        wealths = Portfolio(population, nulls, stakes, bar).advance(np.tile(values, (BLOCK, 1)))
        rejected = int(np.logical_and.accumulate(wealths.max(axis=1) >= 1 / alpha).sum())
        if rejected == BLOCK:
            return high
        low, high = (low if not rejected else float(nulls[rejected - 1])), float(nulls[rejected])
    return low


def lower_confidence_sequence(
    values: Floats, population: int, stakes: Stakes, alpha: float, grid: int = 400, *, whole: bool = False
) -> Floats:
    """:func:`lower_confidence_bound` after each value, for values in [0, 1]; rounded down to 1/``grid``.

    Args:
        values: Shape (n,): the values seen, in the order drawn.
        population: N.
        stakes: The portfolio.
        alpha: One-sided error rate.
        grid: How many nulls between 0 and 1 are tried.
        whole: All values are 0 or 1.

    Returns:
        Shape (n,); never falls.
    """
    nulls = np.arange(grid) / grid
    portfolio = Portfolio(population, nulls, stakes, 1 / alpha if whole else inf)
    bounds = np.cumsum(values) / population
    ever = np.zeros((grid, 1), dtype=np.bool_)
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        reached = portfolio.advance(np.tile(block, (grid, 1))) >= 1 / alpha
        rejected = np.logical_or.accumulate(reached, axis=1) | ever
        prefixes = np.logical_and.accumulate(rejected, axis=0).sum(axis=0)
        lowest = np.where(prefixes > 0, nulls[np.maximum(prefixes - 1, 0)], 0.0)
        bounds[start : start + BLOCK] = np.maximum(bounds[start : start + BLOCK], lowest)
        ever = rejected[:, -1:]
    return bounds
