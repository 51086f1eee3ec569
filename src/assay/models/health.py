"""What all requests together know of one server: whether it is down, and whether there is any use in going on.

A request that fails because the whole server is down has not used up an attempt. While it is down, one request at a
time tries the server with growing pauses and the others wait, so that a restart costs nothing but its own time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import ServerUnreachableError
from assay.models.losses import Losses

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from assay.models.concurrency import Concurrency
    from assay.models.retry import Fault

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
# Seconds after which a probe that has not failed lets the next request go too: a server that is back may need minutes
# for the probe's answer. Halved with every request let go.
_PATIENCE = 2.0
_TOLD_AFTER = 3.0
"""Seconds; whoever watches is not bothered with shorter outages."""


class ServerHealth:
    """Shared by all requests to one server. Every attempt is framed by :meth:`enter` and :meth:`leave`."""

    def __init__(
        self,
        address: str,
        *,
        concurrency: Concurrency,
        give_up_after: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        rng: random.Random,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Begin with a server that is up.

        Args:
            address: the server's.
            concurrency: how many requests are outstanding at once.
            give_up_after: seconds that it may be down.
            clock: tells the time.
            sleep: waits.
            rng: spreads the pauses.
            tell: is given a line when it has been down for a while, and when it is back.
        """
        self._address = address
        self._tell = tell
        self._give_up_after = give_up_after
        self._clock = clock
        self._sleep = sleep
        self._rng = rng

        self._down_since: float | None = None
        self._outage_is_told = False
        self._outage = 0
        """Number of the present or last outage; an attempt's ticket is the number at its start."""
        self._in_flight = 0
        self._in_flight_from_before = 0
        """Attempts still open that began before the outage: while there are any, the server may well be alive."""
        self._pause = _FIRST_PAUSE
        self._next_probe = 0.0
        self._let_go = 0
        self._last_word: str | None = None
        """Why this server was given up, once it was."""
        self._losses = Losses(address, concurrency=concurrency, give_up_after=give_up_after, clock=clock)

    @property
    def is_down(self) -> bool:
        """Whether an outage has begun and not ended."""
        return self._down_since is not None

    def enter(self) -> int | None:
        """The ticket of an attempt that may be made now; None while the server is down and it is not time to try it."""
        if self._down_since is not None:
            now = self._clock()
            if now < self._next_probe:
                return None
            self._next_probe = now + _PATIENCE * 0.5**self._let_go
            self._let_go += 1
        self._in_flight += 1
        return self._outage

    async def wait(self) -> None:
        """Wait until it is time to try the server that is down.

        Raises:
            ServerUnreachableError: it was given up.
        """
        if self._last_word is not None:
            raise ServerUnreachableError(self._last_word)
        await self._sleep(max(0.0, self._next_probe - self._clock()))

    def leave(self, ticket: int) -> None:
        """The attempt is over, however it ended."""
        self._in_flight -= 1
        if ticket < self._outage:
            self._in_flight_from_before -= 1

    def answered(self) -> None:
        """An answer came: all is well."""
        self.alive()
        self._losses.answered()

    def alive(self) -> None:
        """The server replied, if only with an error: it is not down."""
        if self._outage_is_told and self._down_since is not None:
            self._tell(f"{self._address} answers again after {self._clock() - self._down_since:.0f} s")
        self._outage_is_told = False
        self._down_since = self._last_word = None

    def down(self, fault: Fault, ticket: int) -> None:
        """An attempt found the server down.

        Raises:
            ServerUnreachableError: it has been down for ``give_up_after`` seconds.
        """
        now = self._clock()
        self._losses.failing_since()
        if self._down_since is None:
            self._down_since = now
            self._outage += 1
            self._in_flight_from_before = self._in_flight
            self._pause = _FIRST_PAUSE
        elif ticket == self._outage:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        pause = max(self._pause * self._rng.uniform(0.5, 1.0), fault.retry_after or 0.0)
        self._next_probe = now + pause
        self._let_go = 0
        if now - self._down_since >= _TOLD_AFTER and not self._outage_is_told:
            self._outage_is_told = True
            patience = f"{self._give_up_after:.0f} s at most"
            self._tell(f"nothing answers at {self._address} ({fault.message}): waiting for it, {patience}")
        if now - self._down_since >= self._give_up_after and self._in_flight_from_before == 0:
            tried_for = now - self._down_since
            self._last_word = (
                f"nothing answers at {self._address} (tried for {tried_for:.0f} s; last: {fault.message}); "
                "start the server, then run the same command again"
            )
            raise ServerUnreachableError(self._last_word)

    def lost(self, fault: Fault) -> None:
        """A request ends without an answer.

        Raises:
            ServerRefusedError, ServerUnreachableError: see :meth:`assay.models.losses.Losses.lost`.
        """
        self._losses.lost(fault)
