"""Sequential tests on drawn tokens: are they from the distribution that is stated, and do seeds decide which?

Each test multiplies likelihood ratios. If the claim under test is true, the expected ratio is at most 1 at each draw,
whatever was drawn before, so that the product ever exceeds 1/α with probability at most α (Ville's inequality), however
often one looks; and so does an average of several products.

A server lists only the k likeliest tokens of a position. All that is done here is conditional on the drawn token being
one of them: then its probability at temperature T is exactly p_j^(1/T) / Σ p_i^(1/T), both over the list, and what the
other tokens have does not matter. (A score test that takes the listed tokens for all tokens is biased.)

Sources: Ville (1939), Étude critique de la notion de collectif; Robbins (1970), "Statistical methods related to the law
of the iterated logarithm", Ann. Math. Stat. 41:1397 (a mixture of likelihood ratios gives an interval that holds at
every time).
"""

from __future__ import annotations

from math import exp, inf, log
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLDEST, _HOTTEST, _STEPS = 0.02, 4.0, 81
GRID: tuple[float, ...] = tuple(_COLDEST * (_HOTTEST / _COLDEST) ** (step / (_STEPS - 1)) for step in range(_STEPS))
"""Temperatures that are told apart, 7 % from one to the next."""
_GRID = np.array(GRID)


class Evidence:
    """A product of ratios, whose expectation is at most 1 each if the claim is true.

    Args:
        alpha: the greatest chance that :attr:`is_enough` becomes true although the claim is.
    """

    def __init__(self, alpha: float) -> None:
        self._bar = -log(alpha)
        self._log = 0.0
        self._most = 0.0

    def multiply(self, ratio: float) -> None:
        """Take the next ratio, at least 0."""
        self._log += log(ratio) if ratio > 0 else -inf
        self._most = max(self._most, self._log)

    @property
    def is_enough(self) -> bool:
        """Whether the claim is refuted."""
        return self._most >= self._bar


class DrawnTemperature:
    """Which temperatures the drawn tokens agree with.

    Args:
        alpha: the greatest chance that the true temperature is ever excluded.
    """

    def __init__(self, alpha: float) -> None:
        self._bar = -log(alpha)
        self._logs = np.zeros(len(GRID))
        self._excluded = np.zeros(len(GRID), dtype=bool)
        self.tokens = 0

    def add(self, logprobs: Sequence[float], drawn: int) -> None:
        """Take a drawn token.

        Args:
            logprobs: of the listed tokens, at temperature 1.
            drawn: which of them was drawn.
        """
        if len(logprobs) < 2:
            return
        self.tokens += 1
        gaps = (np.asarray(logprobs) - max(logprobs))[:, None] / _GRID
        self._logs += gaps[drawn] - np.log(np.exp(gaps).sum(axis=0))
        most = self._logs.max()
        mixture = most + np.log(np.exp(self._logs - most).mean())
        self._excluded |= mixture - self._logs >= self._bar

    @property
    def likeliest(self) -> float:
        """The temperature that makes the drawn tokens likeliest."""
        return GRID[int(self._logs.argmax())]

    @property
    def interval(self) -> tuple[float, float]:
        """The temperatures that are not excluded, from the least to the greatest; (inf, 0) if all are."""
        left = np.flatnonzero(~self._excluded)
        return (GRID[int(left[0])], GRID[int(left[-1])]) if len(left) else (inf, 0.0)

    def excludes(self, temperature: float) -> bool:
        """Whether the tokens were not drawn at this temperature."""
        nearest = int(np.abs(np.log(_GRID / temperature)).argmin())
        return bool(self._excluded[max(0, nearest - 1) : nearest + 2].all())


class NucleusTest:
    """Whether tokens beyond the nucleus of top_p are drawn.

    Args:
        top_p: as asked for.
        alpha: the greatest chance of "ignored" where at most one token in a hundred lies beyond by rounding.
        beta: the greatest chance of "applied" where all tokens are drawn.
    """

    _BY_ROUNDING = 0.01
    _SLACK = 0.02
    """So far beyond ``top_p`` does the mass before a token lie that is called beyond the nucleus."""

    def __init__(self, top_p: float, alpha: float, beta: float) -> None:
        self._top_p = top_p
        self._ignored, self._applied = Evidence(alpha), Evidence(beta)
        self.tokens = self.beyond = 0

    def add(self, logprobs: Sequence[float], drawn: int | None) -> None:
        """Take a drawn token.

        Args:
            logprobs: of the listed tokens, by falling probability, at temperature 1.
            drawn: which of them was drawn; None where it is not listed.
        """
        before, kept = 0.0, 0
        for value in logprobs:
            if before > self._top_p + self._SLACK:
                break
            before += exp(value)
            kept += 1
        else:
            return  # The list ends within the nucleus.
        inside = min(before, 1 - 1e-9)
        is_beyond = drawn is None or drawn >= kept
        self.tokens += 1
        self.beyond += is_beyond
        if (outside := 1 - inside) > 2 * self._BY_ROUNDING:
            self._ignored.multiply(
                outside / self._BY_ROUNDING if is_beyond else (1 - outside) / (1 - self._BY_ROUNDING)
            )
            self._applied.multiply(
                self._BY_ROUNDING / outside if is_beyond else (1 - self._BY_ROUNDING) / (1 - outside)
            )

    @property
    def is_ignored(self) -> bool:
        """Whether tokens beyond the nucleus are drawn."""
        return self._ignored.is_enough

    @property
    def is_applied(self) -> bool:
        """Whether fewer of them are drawn than without top_p."""
        return self._applied.is_enough


class SeedTest:
    """Whether equal seeds give equal tokens, and unequal seeds tokens of their own.

    Both look at two draws of one distribution, position by position up to the first difference. If they are
    independent, they are equal with probability Σ p².

    Args:
        alpha: the greatest chance of each of "ignored" and "constant" where seeds are honoured, and of "honoured" where
            they are ignored.
    """

    _BY_ROUNDING = 0.05
    """Share of positions at which rounding may change a token in spite of an equal seed."""

    def __init__(self, alpha: float) -> None:
        self._ignored, self._honoured, self._constant = Evidence(alpha), Evidence(alpha), Evidence(alpha)
        self.with_equal_seeds = [0, 0]
        """Tokens compared, and how many were equal."""
        self.with_unequal_seeds = [0, 0]

    def add_equal(self, logprobs: Sequence[float], is_equal: bool) -> None:
        """Take a position of two answers with one seed: the listed log-probabilities, whether the tokens are equal."""
        self.with_equal_seeds[0] += 1
        self.with_equal_seeds[1] += is_equal
        differ = 1 - _most_collisions(logprobs)
        if differ > 2 * self._BY_ROUNDING:
            ratio = (1 - differ) / (1 - self._BY_ROUNDING) if is_equal else differ / self._BY_ROUNDING
            self._ignored.multiply(ratio)
            self._honoured.multiply(1 / ratio)

    def add_unequal(self, logprobs: Sequence[float], is_equal: bool) -> None:
        """Take a position of two answers with unequal seeds."""
        self.with_unequal_seeds[0] += 1
        self.with_unequal_seeds[1] += is_equal
        equal = _most_collisions(logprobs)
        if equal < 1 - 2 * self._BY_ROUNDING:
            self._constant.multiply((1 - self._BY_ROUNDING) / equal if is_equal else self._BY_ROUNDING / (1 - equal))

    @property
    def is_ignored(self) -> bool:
        """Whether equal seeds give unequal tokens."""
        return self._ignored.is_enough

    @property
    def is_constant(self) -> bool:
        """Whether all seeds give the same tokens."""
        return self._constant.is_enough

    @property
    def is_honoured(self) -> bool:
        """Whether equal seeds give equal tokens, more often than chance does."""
        return self._honoured.is_enough


def _most_collisions(logprobs: Sequence[float]) -> float:
    """The greatest possible probability that two independent draws are equal, given the listed tokens."""
    listed = [exp(value) for value in logprobs]
    rest = max(0.0, 1 - sum(listed))
    return min(1.0, sum(p * p for p in listed) + rest * rest)
