"""What all requests together know of one server: whether it is down.

A request that fails because the whole server is down has not used up an attempt. While it is down, one request at a
time tries the server with growing pauses and the others wait, so that a restart costs nothing but its own time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from assay.models.retry import Fault

_FIRST_PAUSE = 0.25
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 5.0
# Seconds after which a probe that has not failed lets the next request go too: a server that is back may need minutes
# for the probe's answer. Halved with every request let go.
_PATIENCE = 2.0


class ServerHealth:
    """Shared by all requests to one server. Every attempt begins with :meth:`enter`."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        rng: random.Random,
    ) -> None:
        """Begin with a server that is up.

        Args:
            clock: tells the time.
            sleep: waits.
            rng: spreads the pauses.
        """
        self._clock = clock
        self._sleep = sleep
        self._rng = rng

        self._is_down = False
        self._outage = 0
        """Number of the present or last outage; an attempt's ticket is the number at its start."""
        self._pause = _FIRST_PAUSE
        self._next_probe = 0.0
        self._let_go = 0

    def enter(self) -> int | None:
        """The ticket of an attempt that may be made now; None while the server is down and it is not time to try it."""
        if self._is_down:
            now = self._clock()
            if now < self._next_probe:
                return None
            self._next_probe = now + _PATIENCE * 0.5**self._let_go
            self._let_go += 1
        return self._outage

    async def wait(self) -> None:
        """Wait until it is time to try the server that is down."""
        await self._sleep(max(_SHORTEST_PAUSE, self._next_probe - self._clock()))

    def alive(self) -> None:
        """The server replied, if only with an error: it is not down."""
        self._is_down = False

    def down(self, fault: Fault, ticket: int) -> None:
        """An attempt found the server down."""
        if not self._is_down:
            self._is_down = True
            self._outage += 1
            self._pause = _FIRST_PAUSE
        elif ticket == self._outage:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        pause = max(self._pause * self._rng.uniform(0.5, 1.0), fault.retry_after or 0.0)
        self._next_probe = self._clock() + pause
        self._let_go = 0
