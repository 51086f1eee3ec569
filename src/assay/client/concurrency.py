"""How many requests may be outstanding at once: the interface that the queue and the client obey, and a fixed number.

Nothing here waits or looks at a clock: the queue and the client tell what happened and when.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.client.throughput import Level
    from assay.types import Answer, FailureCause, Response


class ServerLoad(NamedTuple):
    """The load that a server reports."""

    running: int
    waiting: int


class Sent(msgspec.Struct, frozen=True):
    """A request that was sent."""

    at: float
    among: int
    """Requests in flight then, itself included."""
    level: Level | None = None
    """The level that it measures, if any."""


class Concurrency:
    """A fixed limit. Times are in seconds of one monotonic clock."""

    is_searching = False
    """Whether it needs the server's load."""

    def __init__(self, limit: int) -> None:
        self._limit = self._peak = limit
        self._outstanding = self._pausing = 0

    @property
    def limit(self) -> int:
        """Requests that may be outstanding now."""
        return self._limit

    @property
    def bound(self) -> int:
        """The most requests that may be outstanding: after the limit falls, more than the limit may still be."""
        return max(self._limit, self._outstanding)

    @property
    def in_flight(self) -> int:
        """Requests that servers are working on: those outstanding, less those that wait for a retry."""
        return self._outstanding - self._pausing

    def sent(self, now: float) -> Sent:
        """A request is sent."""
        self._outstanding += 1
        return Sent(now, self.in_flight)

    def ended(self, sent: Sent, task: str, response: Response, now: float) -> None:  # noqa: ARG002
        """A request has its response, or all its attempts have failed.

        Args:
            sent: what :meth:`sent` returned for it.
            task: the task that it belongs to; requests of one task are alike.
            response: its response.
            now: the time.
        """
        self._outstanding -= 1

    def failed(self, cause: FailureCause, began: float, now: float) -> None:
        """An attempt that began at `began` has failed; the request may be retried."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """In this block a request waits for a retry and does not count as in flight."""
        self._pausing += 1
        try:
            yield
        finally:
            self._pausing -= 1

    @property
    def has_room(self) -> bool:
        """Whether a request that waited may be retried now; not if the limit has fallen below what is in flight."""
        return self.in_flight < self._limit

    def loaded(self, load: ServerLoad, now: float) -> None:
        """The server reported how many requests run and how many wait."""

    def summary(self) -> dict[str, Any]:
        """How the limit was found, for the results."""
        return {"final": self._limit, "peak": self._peak, "decided_by": "user"}


def work_of(answer: Answer) -> int:
    """An answer's tokens, estimated from its characters if the server does not count them."""
    return max(1, len(answer.text or "") // 4 if answer.completion_tokens is None else answer.completion_tokens)
