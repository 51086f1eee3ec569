"""How requests share what they know of a server that is down: when it is tried again, and by whom."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from assay.client.health import ServerHealth
from assay.client.retry import Fault, Retryability
from assay.types import FailureCause
from tests.client.clocks import VirtualTime

DOWN = Fault(FailureCause.UNREACHABLE, "connection refused", Retryability.SERVER_DOWN)


def health(time: VirtualTime) -> ServerHealth:
    return ServerHealth(clock=time.clock, sleep=time.sleep, rng=random.Random(0))


async def enter(shared: ServerHealth) -> int:
    """As OpenAIModel.ask does before each attempt; the attempt's ticket."""
    while (ticket := shared.enter()) is None:
        await shared.wait()
    return ticket


class Server:
    """A stand-in that is up or down by the clock and takes `seconds` for an answer."""

    def __init__(self, time: VirtualTime, is_up: Callable[[float], bool], seconds: float = 0.0) -> None:
        self.time, self.is_up, self.seconds = time, is_up, seconds
        self.tried: list[float] = []
        self.finished: list[float] = []

    async def ask(self, shared: ServerHealth) -> None:
        """As OpenAIModel.ask does, with the network left out."""
        while True:
            ticket = await enter(shared)
            self.tried.append(self.time.now)
            if self.is_up(self.time.now):
                await self.time.sleep(self.seconds)
                shared.alive()
                self.finished.append(self.time.now)
                return
            shared.down(DOWN, ticket)


async def _gather(server: Server, shared: ServerHealth, requests: int) -> list[BaseException | None]:
    return await asyncio.gather(*(server.ask(shared) for _ in range(requests)), return_exceptions=True)


def test_an_outage_is_waited_out_by_all_with_one_probe_at_a_time() -> None:
    time = VirtualTime()
    start = time.now
    server = Server(time, lambda now: now >= start + 90)
    results = asyncio.run(time.run(_gather(server, health(time), 32)))
    assert results == [None] * 32
    assert time.now - start < 90 + 10
    during = [at for at in server.tried if start < at < start + 90]
    # With pauses of 2.5 to 5 s: some tens of probes, not 32 requests every few seconds.
    assert 18 <= len(during) <= 45
    assert len(set(during)) == len(during)


def test_slow_answers_after_an_outage_do_not_hold_the_others_back() -> None:
    """The first probe's answer takes ten minutes; the others must not wait for it."""
    time = VirtualTime()
    start = time.now
    server = Server(time, lambda now: now >= start + 60, seconds=600)
    asyncio.run(time.run(_gather(server, health(time), 32)))
    assert max(server.finished) < start + 60 + 600 + 20


def test_a_wait_that_the_server_asks_for_is_kept() -> None:
    time = VirtualTime()
    shared = health(time)

    async def scenario() -> None:
        ticket = await enter(shared)
        shared.down(Fault(FailureCause.SERVER_ERROR, "loading", Retryability.SERVER_DOWN, 503, 60.0), ticket)
        await enter(shared)

    asyncio.run(time.run(scenario()))
    assert time.now - 1000 == 60
