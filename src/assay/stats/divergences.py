"""Two sequential tests on divergences, one a prompt, drawn independently: is their mean too large, is it small enough?

Both bet against a claim about the mean of non-negative values. Each factor has an expectation of at most 1 if the claim
holds, whatever was seen before, so that the wealth exceeds 1/α at any time with probability at most α (Ville's
inequality), and so does an average of several such wealths. For the idea and its sources see
:mod:`assay.stats.betting`.

- *Different*: the claim is "the mean is at most m". For c > 1, the factor min(x/m, c) has an expectation of at most
  E[x]/m ≤ 1; so has 1 − s + s·min(x/m, c) for a stake s in [0, 1].
- *Same*: the claim is "the mean, of values cut at ``CUT``·δ, is at least δ". The factor 1 + s·(1 − min(x/δ, CUT)) is
  never negative for s ≤ 1/(CUT − 1), and has an expectation of at most 1. A value beyond the cut, which the claim does
  not weigh, keeps the test from saying "same".
"""

from __future__ import annotations

from itertools import product
from math import exp, log, log1p

CUT = 6.0
_CAPS = (3.0, 10.0, 50.0, 1000.0)
_STAKES = (0.1, 0.4, 0.8, 0.98)
_SHARES = (0.5, 0.9, 0.999)
"""Of the greatest possible stake."""


class _Wealth:
    """The average of several gamblers' wealths, in logarithms."""

    def __init__(self, gamblers: int) -> None:
        self._logs = [0.0] * gamblers

    def multiply(self, factors: list[float]) -> None:
        self._logs = [old + log(factor) for old, factor in zip(self._logs, factors, strict=True)]

    @property
    def log(self) -> float:
        most = max(self._logs)
        return most + log(sum(exp(each - most) for each in self._logs) / len(self._logs))


class DivergenceTest:
    """Both tests on one stream of divergences.

    Args:
        at_most: the mean divergence of a healthy server, at most; greater than 0.
        size: the mean divergence from which on a change matters; greater than `at_most`.
        alpha: the greatest chance of "different" where the mean is at most `at_most`.
        beta: the greatest chance of "same" where the mean (of values cut at six times `size`) is at least `size`.
    """

    def __init__(self, at_most: float, size: float, alpha: float, beta: float) -> None:
        if not 0 < at_most < size:
            raise ValueError(f"need 0 < at_most < size, not {at_most} and {size}")
        self._at_most, self._size = at_most, size
        self._bars = -log(alpha), -log(beta)
        self._gamblers = list(product(_CAPS, _STAKES))
        self._different = _Wealth(len(self._gamblers))
        self._same = _Wealth(len(_SHARES))
        self._ever = [0.0, 0.0]
        self.values: list[float] = []

    def add(self, divergence: float) -> None:
        """Take the next divergence, at least 0."""
        self.values.append(divergence)
        ratio, part = divergence / self._at_most, min(divergence / self._size, CUT)
        self._different.multiply([1 - stake + stake * min(ratio, cap) for cap, stake in self._gamblers])
        self._same.multiply([1 + share / (CUT - 1) * (1 - part) for share in _SHARES])
        self._ever = [max(old, new) for old, new in zip(self._ever, (self._different.log, self._same.log), strict=True)]

    @property
    def is_different(self) -> bool:
        """Whether the mean is larger than a healthy server's."""
        return self._ever[0] >= self._bars[0]

    @property
    def is_same(self) -> bool:
        """Whether the mean is smaller than the size that matters, and no value is beyond the cut."""
        return self._ever[1] >= self._bars[1] and max(self.values) <= CUT * self._size


def fewest_for_same(beta: float) -> int:
    """After how many divergences of 0 the test says "same"."""
    return int(-log(beta) / log1p(1 / (CUT - 1))) + 1
