"""Whether a server is down, shared by all requests to it.

A request that fails because the whole server is down does not use up an attempt. During an outage one request at a time
tries the server, with growing pauses, and the others wait. So a restart costs only time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from assay.client.retry import Fault

_FIRST_PAUSE = 0.25
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 5.0
# Seconds after which another request may try the server too, if the first has not failed: a server that is back may
# need minutes for the first answer. Halved with every such request.
_NEXT_TRY_AFTER = 2.0


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
        """Number of the current or last outage; an attempt's ticket is the number when it began."""
        self._pause = _FIRST_PAUSE
        self._next_try = 0.0
        self._tries = 0

    def enter(self) -> int | None:
        """A ticket for an attempt; None if the server is down and it is not yet time to try it again."""
        if self._is_down:
            now = self._clock()
            if now < self._next_try:
                return None
            self._next_try = now + _NEXT_TRY_AFTER * 0.5**self._tries
            self._tries += 1
        return self._outage

    async def wait(self) -> None:
        """Wait until it is time to try the server that is down."""
        await self._sleep(max(_SHORTEST_PAUSE, self._next_try - self._clock()))

    def alive(self) -> None:
        """The server replied, perhaps with an error: it is not down."""
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
        self._next_try = self._clock() + pause
        self._tries = 0
