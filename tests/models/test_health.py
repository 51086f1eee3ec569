import asyncio
import random
from collections.abc import Callable

import pytest

from assay.errors import ServerRefusedError, ServerUnreachableError
from assay.models.concurrency import Concurrency
from assay.models.health import ServerHealth
from assay.models.retry import Fault, Hope
from assay.types import FailureCause
from tests.models.clocks import VirtualTime

DOWN = Fault(FailureCause.UNREACHABLE, "connection refused", Hope.SERVER_DOWN)
BROKEN = Fault(FailureCause.SERVER_ERROR, "HTTP 500: boom", Hope.SOME, 500)
REFUSED = Fault(FailureCause.UNAUTHORISED, "HTTP 401: who?", Hope.NONE, 401)
BAD = Fault(FailureCause.BAD_REQUEST, "HTTP 400: no", Hope.NONE, 400)


def health(
    time: VirtualTime, *, concurrency: int = 4, give_up_after: float = 300.0, told: list[str] | None = None
) -> ServerHealth:
    return ServerHealth(
        "http://host:8000",
        concurrency=Concurrency(concurrency),
        give_up_after=give_up_after,
        clock=time.clock,
        sleep=time.sleep,
        rng=random.Random(0),
        tell=(told if told is not None else []).append,
    )


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
            try:
                up = self.is_up(self.time.now)
                if up:
                    await self.time.sleep(self.seconds)
            finally:
                shared.leave(ticket)
            if up:
                shared.answered()
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
    asyncio.run(time.run(_gather(server, health(time, give_up_after=1e9), 32)))
    assert max(server.finished) < start + 60 + 600 + 20


def test_a_server_that_stays_away_is_given_up_by_all_waiting() -> None:
    time = VirtualTime()
    start = time.now
    server = Server(time, lambda _: False)
    results = asyncio.run(time.run(_gather(server, health(time), 8)))
    assert all(isinstance(result, ServerUnreachableError) for result in results)
    assert 300 <= time.now - start < 310
    message = str(results[0])
    assert "http://host:8000" in message
    assert "connection refused" in message
    assert "\n" not in message


def test_a_server_given_up_is_tried_again_when_asked_again() -> None:
    time = VirtualTime()
    start = time.now
    shared = health(time)
    server = Server(time, lambda now: now > start + 400)

    async def twice() -> None:
        with pytest.raises(ServerUnreachableError):
            await server.ask(shared)
        await time.sleep(200)
        await server.ask(shared)

    asyncio.run(time.run(twice()))
    assert len(server.finished) == 1


def test_a_server_with_an_answer_in_the_making_is_not_given_up() -> None:
    """One request has been generating since before the others were refused; it proves that the server is there."""
    time = VirtualTime()
    start = time.now
    shared = health(time)

    async def long_answer() -> None:
        ticket = await enter(shared)
        await time.sleep(1000)
        shared.leave(ticket)
        shared.answered()

    async def both() -> None:
        slow = asyncio.create_task(long_answer())
        await time.sleep(1)
        await asyncio.gather(slow, *(server.ask(shared) for _ in range(3)))

    server = Server(time, lambda now: now > start + 900)
    asyncio.run(time.run(both()))
    assert len(server.finished) == 3


def test_a_cancelled_attempt_does_not_count_as_in_flight() -> None:
    time = VirtualTime()
    shared = health(time)

    async def scenario() -> None:
        ticket = await enter(shared)
        other = await enter(shared)
        shared.leave(other)
        shared.down(DOWN, other)
        shared.leave(ticket)
        with pytest.raises(ServerUnreachableError):
            await Server(time, lambda _: False).ask(shared)

    asyncio.run(time.run(scenario()))
    assert time.now - 1000 < 310


def test_a_wait_that_the_server_asks_for_is_kept() -> None:
    time = VirtualTime()
    shared = health(time)

    async def scenario() -> None:
        ticket = await enter(shared)
        shared.leave(ticket)
        shared.down(Fault(FailureCause.SERVER_ERROR, "loading", Hope.SERVER_DOWN, 503, 60.0), ticket)
        await enter(shared)

    asyncio.run(time.run(scenario()))
    assert time.now - 1000 == 60


def test_a_server_that_refuses_every_request_ends_the_run() -> None:
    shared = health(VirtualTime())
    shared.lost(REFUSED)
    shared.lost(REFUSED)
    with pytest.raises(ServerRefusedError, match=r"http://host:8000.*401"):
        shared.lost(REFUSED)


def test_refusals_among_answers_do_not() -> None:
    shared = health(VirtualTime())
    shared.answered()
    for _ in range(100):
        shared.lost(REFUSED)


def test_bad_requests_are_nobodys_fault_but_their_own() -> None:
    time = VirtualTime()
    shared = health(time)
    for _ in range(100):
        shared.lost(BAD)
        time.now += 100


def test_a_server_that_fails_everything_for_long_ends_the_run() -> None:
    time = VirtualTime()
    shared = health(time, concurrency=4)
    shared.answered()
    for _ in range(4):
        shared.lost(BROKEN)
    time.now += 301
    with pytest.raises(ServerUnreachableError, match="answered nothing for 301 s"):
        shared.lost(BROKEN)


def test_one_answer_in_between_lets_it_go_on() -> None:
    time = VirtualTime()
    shared = health(time, concurrency=4)
    for _ in range(100):
        time.now += 100
        shared.answered()
        for _ in range(4):
            shared.lost(BROKEN)


@pytest.mark.parametrize(("seconds", "lines"), [(1.0, 0), (60.0, 2)])
def test_a_longer_outage_is_told_and_its_end(seconds: float, lines: int) -> None:
    time = VirtualTime()
    told: list[str] = []
    server = Server(time, lambda now: now >= 1000 + seconds)
    asyncio.run(time.run(_gather(server, health(time, told=told), 20)))
    assert len(told) == lines
    if told:
        assert told[0] == "nothing answers at http://host:8000 (connection refused): waiting for it, 300 s at most"
        assert told[1].startswith("http://host:8000 answers again after 6")
