"""Finds the number of outstanding requests that keeps a server busy, during the run.

It goes by the server's own count of waiting requests if it publishes one, else by throughput, see
:mod:`assay.client.throughput`. Overload lowers the limit either way.
"""

from __future__ import annotations

import resource
from collections import Counter, deque
from math import ceil
from typing import TYPE_CHECKING, Any

from assay.client.concurrency import Concurrency, Sent, ServerLoad, work_of
from assay.client.throughput import Level
from assay.types import Answer, FailureCause

if TYPE_CHECKING:
    from assay.types import ModelSpec, Response

START = 16
"""The limit with which the search begins."""
MOST = 4096

_OTHER_FILES = 128

_NEARLY = 0.75
"""Share of the limit that must be outstanding for a request to count as a measurement at that limit."""
_WORTH_DOUBLING = 1.1
_SHORTEST_LOOK = 0.5
_FEWEST_ANSWERS = 4
_FEWEST_AT_START = 8
_SHARE = 16
"""A limit is judged after at least limit / 16 answers."""
_FIRST_LOOK_AGAIN = 15.0
"""Seconds until a doubling without a gain is tried again; twice as many the next time."""
_LOOK_AGAIN_AFTER_TIME_OUT = 600.0

_QUEUE_SHARE = 0.1
"""Waiting requests to aim for, as a share of the running ones: enough to fill a free slot at once."""
_QUEUE_TOLERANCE = 1.5
_LOADS_IN_A_ROW = 3
"""A queue counts if it is seen this many times in a row; a shorter one consists of requests that have just arrived."""
_LOAD_LASTS = 15.0
"""Seconds for which a reported load is used if no newer one comes."""
_LEAST_BESIDE_OTHERS = START
"""The lowest limit if most of the queue is other clients': lowering ours further would not shorten it."""

_CAUTIOUS_SECONDS = 5.0
_CAUTIOUS_SHARE = 1 / 16
"""After a fall the limit rises by this share every ``_CAUTIOUS_SECONDS``."""
_OUTCOMES_KEPT = 64
_TOO_MANY_ERRORS = 8

_ALWAYS_OVERLOAD = frozenset({FailureCause.RATE_LIMITED, FailureCause.TIMED_OUT})
_OVERLOAD_IF_MANY = frozenset({FailureCause.SERVER_ERROR, FailureCause.RESET})


class AutoConcurrency(Concurrency):
    """Finds the smallest limit that keeps the server fully busy.

    - The limit doubles from 16 while each doubling raises throughput by at least a tenth. A doubling without a gain is
      undone, and tried again later.
    - If the server reports its load, the limit keeps the queue at about a tenth of the running requests. The load is
      not used for answers of one token, such as log-likelihoods: they take one step, and servers report between steps,
      so that no request seems to run and all seem to wait.
    - After a 429, a time-out, a lost server or many errors the limit halves, and then rises slowly.

    Args:
        most: the highest limit.
    """

    is_searching = True

    def __init__(self, most: int = MOST) -> None:
        super().__init__(min(START, most))
        self._most = most
        self._decided_by = "start"
        self._falls: Counter[str] = Counter()
        self._level = Level(self._limit, began=float("-inf"))
        self._before: Level | None = None
        self._look_again_at: float | None = None
        """When to try again a doubling that brought no gain; None while the limit still rises."""
        self._look_again_after = _FIRST_LOOK_AGAIN
        self._waiting: deque[int] = deque(maxlen=_LOADS_IN_A_ROW)
        self._has_queued = False
        self._load_known_until = float("-inf")
        self._outcomes: deque[bool] = deque(maxlen=_OUTCOMES_KEPT)
        """For each of the last attempts, whether it failed."""
        self._are_short: deque[bool] = deque(maxlen=_OUTCOMES_KEPT)
        """For each of the last answers, whether it was a single token."""
        self._fell_at = float("-inf")
        self._cautious_below: int | None = None
        """The limit before the fall. Below it the limit rises slowly; from there on it doubles again."""
        self._may_rise_at = float("-inf")

    def sent(self, now: float) -> Sent:
        """A request is sent."""
        sent = super().sent(now)
        return Sent(now, sent.among, self._level) if sent.among >= _NEARLY * self._limit else sent

    def ended(self, sent: Sent, task: str, response: Response, now: float) -> None:
        """A request has its response, or all its attempts have failed."""
        was_full = self._is_full
        super().ended(sent, task, response, now)
        if not isinstance(response, Answer):
            return
        self._outcomes.append(False)
        self._are_short.append(response.logprob is not None or response.completion_tokens == 1)
        if was_full and sent.level is self._level and response.attempts == 1:
            self._level.add(task, work_of(response), now - sent.at, sent.among)
            if now >= self._load_known_until:
                self._judge_throughput(now)

    def failed(self, cause: FailureCause, began: float, now: float) -> None:
        """An attempt that began at `began` has failed. Attempts from before the last fall are ignored."""
        if began < self._fell_at:
            return
        if cause in _OVERLOAD_IF_MANY:
            self._outcomes.append(True)
            if sum(self._outcomes) < _TOO_MANY_ERRORS:
                return
        elif cause is FailureCause.UNREACHABLE:
            if False not in self._outcomes:
                return  # nothing was answered since the last fall: still the same outage
        elif cause not in _ALWAYS_OVERLOAD:
            return
        self._falls[cause.value] += 1
        self._decided_by = "failures"
        self._outcomes.clear()
        self._fell_at = now
        self._cautious_below, self._look_again_at = self._limit, None
        if cause is FailureCause.TIMED_OUT:
            # A time-out loses work: stay well below that limit.
            self._cautious_below = ceil(0.75 * self._limit)
            self._look_again_after = max(self._look_again_after, _LOOK_AGAIN_AFTER_TIME_OUT)
        self._has_queued = True
        self._may_rise_at = now + _CAUTIOUS_SECONDS
        self._change(self._limit // 2, now)

    def loaded(self, load: ServerLoad, now: float) -> None:
        """The server reported how many requests run and how many wait."""
        if 2 * (load.running + load.waiting) < self.in_flight:
            return  # too few: one server of several behind this address, or another one
        if not load.running or 2 * sum(self._are_short) > len(self._are_short):
            self._load_known_until = float("-inf")
            return  # one-token answers, reported between steps: see the class
        self._load_known_until = now + _LOAD_LASTS
        self._waiting.append(load.waiting)
        queue = min(self._waiting) if len(self._waiting) == _LOADS_IN_A_ROW else 0
        self._has_queued |= queue > 0
        wanted = ceil(max(1, load.running) * _QUEUE_SHARE)
        if queue > _QUEUE_TOLERANCE * wanted:
            others = load.running + load.waiting - self.in_flight
            least = _LEAST_BESIDE_OTHERS if others > self.in_flight else 1
            self._decided_by = "queue"
            self._change(min(self._limit, max(least, self.in_flight - queue + wanted)), now)
        elif load.waiting == 0 and self._is_full:
            self._decided_by = "queue"
            self._rise(self._limit + wanted if self._has_queued else 2 * self._limit, now)

    def summary(self) -> dict[str, Any]:
        """How the limit was found, for the results."""
        return super().summary() | {"decided_by": self._decided_by, "falls": dict(sorted(self._falls.items()))}

    @property
    def _is_full(self) -> bool:
        return self.in_flight >= _NEARLY * self._limit

    def _judge_throughput(self, now: float) -> None:
        level, before = self._level, self._before
        if now - level.began < _SHORTEST_LOOK or level.answers < self._fewest_answers():
            return
        if self._cautious_below is not None:
            self._rise(self._cautious_below, now)
            return
        if self._look_again_at is not None:
            if now >= self._look_again_at:
                self._rise(2 * self._limit, now)
            return
        gain = None if before is None else level.gain_over(before)
        queues = level.queues_more_than(before)
        if not queues and (gain is None or gain.is_surely_over(_WORTH_DOUBLING)):
            self._decided_by = "throughput"
            self._rise(2 * self._limit, now)
        elif level.answers >= self._limit:
            # After as many answers as the limit, the last doubling shows no gain.
            self._decided_by = "throughput"
            self._look_again_later(now)
            if queues and before is not None:
                self._change(before.limit, now)

    def _fewest_answers(self) -> int:
        """Answers needed to judge a level: a few during the first rise, later as many as the limit."""
        if self._look_again_after > _FIRST_LOOK_AGAIN and self._cautious_below is None:
            return self._limit
        return max(_FEWEST_AT_START if self._before is None else _FEWEST_ANSWERS, self._limit // _SHARE)

    def _look_again_later(self, now: float) -> None:
        self._look_again_at = now + self._look_again_after
        self._look_again_after *= 2

    def _rise(self, limit: int, now: float) -> None:
        if self._cautious_below is None:
            self._look_again_at = None
            self._change(limit, now)
        elif now >= self._may_rise_at:
            self._may_rise_at = now + _CAUTIOUS_SECONDS
            step = ceil(self._limit * _CAUTIOUS_SHARE)
            self._change(min(limit, self._limit + step, self._cautious_below), now)
            if self._limit == self._cautious_below:
                self._cautious_below = None
                self._look_again_later(now)

    def _change(self, limit: int, now: float) -> None:
        limit = max(1, min(limit, self._most))
        if limit == self._limit:
            return
        self._before = self._level if limit > self._limit and self._level.answers else None
        self._limit = limit
        self._peak = max(self._peak, limit)
        self._level = Level(limit, began=now)
        self._waiting.clear()


def concurrency_of(spec: ModelSpec) -> Concurrency:
    """The concurrency that a specification asks for; ``auto`` stays within this process's limit of open files."""
    return (
        AutoConcurrency(min(MOST, most_connections())) if spec.concurrency == "auto" else Concurrency(spec.concurrency)
    )


def most_connections() -> int:
    """How many connections this process may hold open beside its other files."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if allowed == resource.RLIM_INFINITY else max(1, allowed - _OTHER_FILES)
