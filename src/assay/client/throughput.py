"""Measures a server's throughput at one number of outstanding requests, compared with another.

By Little's law, n outstanding requests that each take t seconds for w tokens mean a throughput of n * w / t. So the
first answers are enough: there is no need to wait until the server has settled at a new n. With n as it was when the
request was sent, this also holds while n and a queue grow, since a request waits only for those before it. Each task is
compared with itself, because a token of a short answer costs more time than one of a long answer.

Queueing shows too: the time that long and short answers have in common is waiting, not generation.
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
        """Seconds of an answer without tokens, by linear regression: queueing and prefill.

        None if the answers' lengths differ too little.
        """
        spread = self.answers * self.work_squared - self.work**2
        if self.answers < _FEWEST_FOR_WAIT or spread < _LEAST_SPREAD * self.work**2:
            return None
        slope = (self.answers * self.work_seconds - self.work * self.seconds) / spread
        return (self.seconds - slope * self.work) / self.answers

    def variance(self) -> float:
        """Relative variance of the ratio of the sums, from the residuals, as for any ratio estimator."""
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
        """Number of answers measured."""
        return self.all.answers

    def add(self, task: str, work: float, seconds: float, among: int) -> None:
        """Record an answer: its tokens, its seconds, and the requests in flight when it was sent, itself included."""
        in_full = seconds * self.limit / among
        for pace in (self.all, self._paces.setdefault(task, _Pace())):
            pace.add(work, in_full)

    def queues_more_than(self, other: Level | None) -> bool:
        """Whether requests wait longer than their answers are generated, and clearly longer than at the other level."""
        wait = self.all.wait()
        before = other.all.wait() if other is not None else None
        if wait is None or 2 * wait * self.answers < self.all.seconds:
            return False
        return before is None or wait > _CLEARLY_LONGER * before

    def gain_over(self, other: Level) -> Gain:
        """This level's throughput relative to another's, task by task for common tasks. Both must have answers."""
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
