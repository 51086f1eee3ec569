"""How fast a server works at one number of outstanding requests, compared with another.

By Little's law n requests outstanding, each of which takes t seconds for w tokens, are a throughput of n * w / t. So
the answers that come first tell it: there is no need to wait until a server that was given more to do has caught up.
With n as it was when the request left, that holds also while n grows and a queue with it: a request waits for those
before it. Each task is compared with itself, because tokens of short answers cost more time than those of long ones.

Whether there is a queue shows too: what long and short answers take alike is no making of tokens, but waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

_FEWEST_FOR_WAIT = 4
_LEAST_SPREAD = 0.05
_CLEARLY_LONGER = 1.5
_SURE = 2.0
"""Standard errors."""


class Gain(NamedTuple):
    """One level's throughput as a multiple of another's."""

    estimate: float
    error: float
    """Standard error of the estimate, as a share of it."""

    def is_surely_over(self, ratio: float) -> bool:
        """Whether it is at least `ratio`, and certainly more than nothing."""
        return self.estimate >= ratio and self.estimate > 1 + _SURE * self.error


@dataclass
class _Pace:
    """Sums over answers, of their tokens and of the seconds they took."""

    answers: int = 0
    work: float = 0.0
    seconds: float = 0.0
    work_squared: float = 0.0
    work_seconds: float = 0.0
    seconds_squared: float = 0.0

    def add(self, work: float, seconds: float) -> None:
        self.answers += 1
        self.work += work
        self.seconds += seconds
        self.work_squared += work * work
        self.work_seconds += work * seconds
        self.seconds_squared += seconds * seconds

    def wait(self) -> float | None:
        """Seconds that an answer without tokens would take, by linear regression; None where lengths differ too little.

        That is: waiting for a place, and reading the prompt.
        """
        spread = self.answers * self.work_squared - self.work**2
        if self.answers < _FEWEST_FOR_WAIT or spread < _LEAST_SPREAD * self.work**2:
            return None
        slope = (self.answers * self.work_seconds - self.work * self.seconds) / spread
        return (self.seconds - slope * self.work) / self.answers

    def variance(self) -> float:
        """Of the ratio of the sums, relative to its square; by the residuals, as for any ratio estimator."""
        if self.answers < 2 or not self.seconds:
            return 1.0
        ratio = self.work / self.seconds
        residual = self.work_squared - 2 * ratio * self.work_seconds + ratio**2 * self.seconds_squared
        return max(0.0, residual) / self.work**2 * self.answers / (self.answers - 1)


class Level:
    """A limit and what was measured at it.

    Args:
        limit: requests outstanding.
        began: when the limit came into force, in seconds.
    """

    def __init__(self, limit: int, began: float) -> None:
        self.limit = limit
        self.began = began
        self.all = _Pace()
        self._paces: dict[str, _Pace] = {}
        """By task."""

    @property
    def answers(self) -> int:
        """How many were measured."""
        return self.all.answers

    def add(self, task: str, work: float, seconds: float, among: int) -> None:
        """An answer of so many tokens took so long, for a request that left as one of so many outstanding."""
        in_full = seconds * self.limit / among
        for pace in (self.all, self._paces.setdefault(task, _Pace())):
            pace.add(work, in_full)

    def queues_more_than(self, other: Level | None) -> bool:
        """Whether answers wait for longer than they are made, and clearly longer than at the other level."""
        wait = self.all.wait()
        before = other.all.wait() if other is not None else None
        if wait is None or 2 * wait * self.answers < self.all.seconds:
            return False
        return before is None or wait > _CLEARLY_LONGER * before

    def gain_over(self, other: Level) -> Gain:
        """This level's throughput over that of another, task by task where both know one. Both must have answers."""
        both = self._paces.keys() & other._paces.keys()
        pairs = [(self._paces[task], other._paces[task]) for task in both] or [(self.all, other.all)]
        seconds = expected = variance = 0.0
        for pace, theirs in pairs:
            share = pace.work * theirs.seconds / theirs.work
            seconds += pace.seconds
            expected += share
            variance += share**2 * (pace.variance() + theirs.variance())
        doubled = self.limit / other.limit
        return Gain(doubled * expected / max(seconds, 1e-9), sqrt(variance) / max(expected, 1e-9))
