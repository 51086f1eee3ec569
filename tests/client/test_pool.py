"""Several replicas on real sockets: what becomes of requests when one is slow, dead, odd or gone for a while."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from assay.client.openai import OpenAIModel
from assay.client.pool_member import Member
from assay.errors import ServerRefusedError, ServerUnreachableError
from assay.types import Answer, Failure, FailureCause, ModelSpec, Request, Response
from tests.client.clocks import PATIENT, FastTime
from tests.client.test_openai import expected, request, texts
from tests.servers.scripted import Fault, ScriptedServer


class Asked:
    """What a pool made of some requests."""

    def __init__(self) -> None:
        self.responses: list[Response] = []
        self.told: list[str] = []
        self.model: OpenAIModel | None = None


async def _ask(
    urls: Sequence[str], requests: Sequence[Request], asked: Asked, speed: float, spec: dict[str, Any]
) -> None:
    time = FastTime(speed)
    model_spec = ModelSpec(base_url=urls[0], replicas=tuple(urls[1:]), model="scripted-model", **spec)
    responses: dict[int, Response] = {}
    todo = list(enumerate(requests))[::-1]
    async with OpenAIModel(
        model_spec, api_key=None, clock=time.clock, sleep=time.sleep, rng=random.Random(0), tell=asked.told.append
    ) as model:
        asked.model = model

        async def work() -> None:
            while todo:
                place, one = todo.pop()
                responses[place] = await model.ask(one)

        async with asyncio.TaskGroup() as group:
            for _ in range(int(model_spec.concurrency)):
                group.create_task(work())
    asked.responses = [responses[place] for place in range(len(requests))]


def ask(
    servers: Sequence[ScriptedServer | str], requests: Sequence[Request], *, speed: float = 200.0, **spec: Any
) -> Asked:
    """All responses, as an engine with some workers gets them, at `speed` times the clock's."""
    asked = Asked()
    urls = [server if isinstance(server, str) else server.url for server in servers]
    asyncio.run(_ask(urls, requests, asked, speed, {"concurrency": 12, "max_attempts": 4, **spec}))
    return asked


@contextmanager
def replicas(count: int, **options: Any) -> Iterator[list[ScriptedServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ScriptedServer(**options)) for _ in range(count)]


@pytest.fixture
def nowhere() -> str:
    """An address where nothing answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


REQUESTS = [request(number) for number in range(120)]


def test_replicas_of_one_speed_share_equally() -> None:
    with replicas(3, latency=0.003) as servers:
        asked = ask(servers, REQUESTS)
        assert texts(asked.responses) == expected(REQUESTS)
        assert sum(server.count for server in servers) == len(REQUESTS)
        assert all(server.count > 20 for server in servers)
        by_name = Counter(response.endpoint for response in asked.responses)
        assert by_name == {server.url: server.count for server in servers}
        assert asked.told == []


def test_a_slow_one_gets_fewer() -> None:
    with replicas(2, latency=0.002) as fast, ScriptedServer(latency=0.02) as slow:
        asked = ask([slow, *fast], REQUESTS)
        assert texts(asked.responses) == expected(REQUESTS)
        assert 1 <= slow.count < min(server.count for server in fast) / 2


def test_a_dead_one_costs_nothing(nowhere: str) -> None:
    with replicas(2, latency=0.001) as servers:
        asked = ask([nowhere, *servers], REQUESTS, max_attempts=1)
        assert texts(asked.responses) == expected(REQUESTS)
        assert sum(server.count for server in servers) == len(REQUESTS)
        assert asked.told[0].startswith(f"{nowhere} is set aside: no connection")


def test_one_that_dies_and_comes_back_is_used_again() -> None:
    with replicas(2, latency=0.004) as servers:
        mortal, other = servers
        seen: list[int] = []

        def outage() -> None:
            while mortal.count < 10:
                threading.Event().wait(0.001)
            mortal.stop()
            threading.Event().wait(0.05)
            seen.append(mortal.count)
            mortal.start()

        thread = threading.Thread(target=outage, daemon=True)
        thread.start()
        requests = [request(number) for number in range(400)]
        asked = ask(servers, requests, max_attempts=2)
        thread.join()
        assert texts(asked.responses) == expected(requests)
        assert mortal.count > seen[0] + 10
        assert other.count > 0
        assert any("is set aside" in line for line in asked.told)
        assert any("is back" in line for line in asked.told)


@pytest.mark.parametrize(
    "kind",
    [
        "http_500",
        "http_503",
        "http_429",
        "malformed_json",
        "reset",
        "empty_choices",
        "redirect",
        "http_400",
        "http_404",
    ],
)
def test_one_that_fails_everything_loses_nothing(kind: str) -> None:
    with replicas(2, latency=0.002) as good, ScriptedServer(faults=[Fault(kind)]) as bad:
        asked = ask([bad, *good], REQUESTS, max_attempts=2)
        assert texts(asked.responses) == expected(REQUESTS)
        # It answers quickly, if only to fail: it must not draw all requests to itself.
        assert bad.count < len(REQUESTS) / 3


def test_a_passing_fault_is_retried_elsewhere_at_once() -> None:
    with replicas(2) as servers:
        for server in servers:
            server.faults = (Fault("http_500", fraction=0.3, first=1),)
        asked = ask(servers, REQUESTS, max_attempts=8)
        assert texts(asked.responses) == expected(REQUESTS)
        assert max(response.attempts for response in asked.responses) <= 3


def test_attempts_are_counted_over_all() -> None:
    with replicas(3, faults=[Fault("http_500")]) as servers:
        asked = ask(servers, REQUESTS[:4], max_attempts=5, speed=2000)
        assert all(isinstance(response, Failure) for response in asked.responses)
        assert {response.attempts for response in asked.responses} == {5}
        assert sum(server.count for server in servers) == 20


def test_a_bad_request_is_put_to_one_other_and_no_more() -> None:
    with replicas(3, faults=[Fault("http_400")]) as servers:
        asked = ask(servers, REQUESTS[:9])
        assert {response.attempts for response in asked.responses} == {2}
        assert not asked.told
        assert all(isinstance(one, Failure) and one.cause is FailureCause.BAD_REQUEST for one in asked.responses)


def test_a_request_that_is_too_long_is_not_put_to_another() -> None:
    with replicas(3, faults=[Fault("http_400_context")]) as servers:
        asked = ask(servers, REQUESTS[:9])
        assert {response.attempts for response in asked.responses} == {1}


def test_a_bad_request_does_not_wait_for_one_that_is_away(nowhere: str) -> None:
    with ScriptedServer(faults=[Fault("http_400")]) as server:
        asked = ask([server, nowhere], REQUESTS[:9])
        assert all(isinstance(one, Failure) and one.cause is FailureCause.BAD_REQUEST for one in asked.responses)


def test_one_that_refuses_the_key_loses_nothing(nowhere: str) -> None:
    with ScriptedServer(latency=0.002) as good, ScriptedServer(api_key="another") as refusing:
        asked = ask([refusing, nowhere, good], REQUESTS, max_attempts=3)
        assert texts(asked.responses) == expected(REQUESTS)
        assert refusing.count < len(REQUESTS) / 3


def test_all_that_refuse_end_the_run() -> None:
    with replicas(2, api_key="another") as servers, pytest.raises(ExceptionGroup) as caught:
        ask(servers, REQUESTS)
    assert caught.group_contains(ServerRefusedError, match="each of 2 endpoints refuses every request.*401")


def test_when_all_are_down_the_run_waits() -> None:
    with replicas(2, latency=0.002) as servers:

        def outage() -> None:
            while servers[0].count < 20:
                threading.Event().wait(0.001)
            for server in servers:
                server.stop()
            threading.Event().wait(60 / 200)
            servers[1].start()

        thread = threading.Thread(target=outage, daemon=True)
        thread.start()
        asked = ask(servers, REQUESTS, max_attempts=1, give_up_after=PATIENT)
        thread.join()
        assert texts(asked.responses) == expected(REQUESTS)


def test_when_all_stay_down_the_run_ends(nowhere: str) -> None:
    with ScriptedServer() as stopped:
        stopped.stop()
        with pytest.raises(ExceptionGroup) as caught:
            ask([nowhere, stopped], REQUESTS, speed=2000)
    assert caught.group_contains(
        ServerUnreachableError, match=rf"nothing has answered at any of {nowhere}, {stopped.url} .*start"
    )


def test_servers_that_speak_no_tls_end_the_run() -> None:
    with replicas(2) as servers, pytest.raises(ExceptionGroup) as caught:
        ask([server.url.replace("http:", "https:") for server in servers], REQUESTS[:4], speed=2000)
    assert caught.group_contains(ServerUnreachableError)


def test_what_a_slow_start_taught_is_forgotten() -> None:
    member = Member(endpoint=None, pause=1.0)  # type: ignore[arg-type]
    assert member.expected_wait(2.0, now=0.0) == 2.0
    member.learn(60.0, now=100.0)
    assert member.expected_wait(2.0, now=100.0) == 60.0
    assert member.expected_wait(2.0, now=130.0) == 31.0
    assert member.expected_wait(2.0, now=700.0) == pytest.approx(2.0, abs=1e-3)
    member.outstanding = 3
    assert member.expected_wait(2.0, now=700.0) == 240.0


def test_speeds_are_smoothed() -> None:
    member = Member(endpoint=None, pause=1.0)  # type: ignore[arg-type]
    for seconds in (1.0, 3.0):
        member.learn(seconds, now=0.0)
    assert member.seconds == 2.0
    for _ in range(1000):
        member.learn(5.0, now=0.0)
    assert member.seconds == pytest.approx(5.0)


def test_cancelling_leaves_nothing_running(nowhere: str) -> None:
    async def cancel_soon() -> None:
        spec = ModelSpec(base_url=nowhere, replicas=(f"{nowhere}/b",), model="m")
        async with OpenAIModel(spec, api_key=None, tell=lambda _: None) as model:
            tasks = [asyncio.create_task(model.ask(one)) for one in REQUESTS[:8]]
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(cancel_soon())


def test_with_one_endpoint_no_answer_names_it() -> None:
    with ScriptedServer() as server:
        [response] = ask([server], REQUESTS[:1]).responses
        assert isinstance(response, Answer)
        assert response.endpoint is None
