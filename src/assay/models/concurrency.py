"""How many requests may be outstanding at once: the interface that the engine and the models obey, and a fixed number.

Nothing here waits or looks at a clock: the engine and the models tell what happened and when.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.models.throughput import Level
    from assay.types import Answer, FailureCause, Response


class ServerLoad(NamedTuple):
    """What a server says of its queue."""

    running: int
    waiting: int


class Sent(msgspec.Struct, frozen=True):
    """A request that is out."""

    at: float
    among: int
    """Requests in flight, itself included."""
    level: Level | None = None
    """The level that it is evidence for, if it is any."""


class Concurrency:
    """A fixed limit. Times are in seconds of one monotonic clock."""

    is_searching = False
    """Whether it wants to be told the server's load."""

    def __init__(self, limit: int) -> None:
        self._limit = self._peak = limit
        self._outstanding = self._pausing = 0

    @property
    def limit(self) -> int:
        """Requests that may be outstanding now."""
        return self._limit

    @property
    def bound(self) -> int:
        """Requests outstanding at most: after a fall those that were sent before are still out."""
        return max(self._limit, self._outstanding)

    @property
    def in_flight(self) -> int:
        """Requests that a server is at work on, as far as we know: outstanding, and not between two attempts."""
        return self._outstanding - self._pausing

    def sent(self, now: float) -> Sent:
        """A request leaves."""
        self._outstanding += 1
        return Sent(now, self.in_flight)

    def ended(self, sent: Sent, task: str, response: Response, now: float) -> None:  # noqa: ARG002
        """Its response is there, or all its attempts have failed.

        Args:
            sent: what :meth:`sent` gave for it.
            task: which of the run's tasks it belongs to; requests of one task are alike.
            response: what came of it.
            now: the time.
        """
        self._outstanding -= 1

    def failed(self, cause: FailureCause, began: float, now: float) -> None:
        """An attempt that began at `began` has failed, whatever the next may bring."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """While a request waits for its next attempt, it keeps no server busy."""
        self._pausing += 1
        try:
            yield
        finally:
            self._pausing -= 1

    @property
    def has_room(self) -> bool:
        """Whether a request that paused may go on: after a fall of the limit some have to wait."""
        return self.in_flight < self._limit

    def loaded(self, load: ServerLoad, now: float) -> None:
        """The server said how many requests it runs and how many wait."""

    def summary(self) -> dict[str, Any]:
        """How the limit came to be, for the results."""
        return {"final": self._limit, "peak": self._peak, "decided_by": "user"}


def work_of(answer: Answer) -> int:
    """What an answer cost the server: its tokens, or an estimate by its letters where the server does not count."""
    return max(1, len(answer.text or "") // 4 if answer.completion_tokens is None else answer.completion_tokens)
