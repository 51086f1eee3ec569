"""No minute holds more than is allowed, wherever it begins; and what providers say of their limits is heeded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from assay.client.openai import OpenAIModel
from assay.client.rate_limit import RateLimit, seconds_until_allowed
from assay.evaluation import evaluate
from assay.types import Answer, ModelSpec, Specification, TaskOptions
from tests.client.clocks import VirtualTime
from tests.client.outages import request
from tests.evaluation.test_flow import TASKS, answer
from tests.servers.scripted import ScriptedServer, reply_with


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def leave(limit: RateLimit, clock: Clock, gaps: list[float], tokens: list[int]) -> list[tuple[float, int]]:
    """When requests leave that come after `gaps`, each answered at once; and the tokens of each."""
    left = []
    for gap, took in zip(gaps, tokens, strict=True):
        clock.now += gap
        estimate = await limit.admit(b"x" * 400)
        left.append((clock.now, took))
        limit.answered(estimate, took)
    return left


def limited(clock: Clock, requests: float | None, tokens: float | None) -> RateLimit:
    async def wait(seconds: float) -> None:
        clock.now += seconds

    return RateLimit(requests, tokens, wait=wait, clock=clock)


GAPS = st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.5, 7.0, 70.0]), min_size=1, max_size=80)


@given(st.integers(1, 50), GAPS)
def test_no_minute_holds_more_requests_than_allowed(allowed: int, gaps: list[float]) -> None:
    clock = Clock()
    left = asyncio.run(leave(limited(clock, allowed, None), clock, gaps, [1] * len(gaps)))
    times = [at for at, _ in left]
    assert all(sum(start <= at < start + 60 - 1e-6 for at in times) <= allowed for start in times)


@given(st.lists(st.integers(10, 400), min_size=30, max_size=60))
def test_tokens_keep_to_the_pace_allowed(tokens: list[int]) -> None:
    clock = Clock()
    left = asyncio.run(leave(limited(clock, None, 1000), clock, [0.0] * len(tokens), tokens))
    before_last = sum(took for _, took in left[:-1])
    assert left[-1][0] >= before_last / 1000 * 60 - 1e-6


def test_an_allowed_pace_is_used_in_full() -> None:
    clock = Clock()
    left = asyncio.run(leave(limited(clock, 60, None), clock, [0.0] * 61, [1] * 61))
    assert left[-1][0] == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"X-RateLimit-Remaining-Tokens": "0", "X-RateLimit-Reset-Tokens": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2.5"}, 2.5),
        ({"x-ratelimit-remaining-tokens": "7", "x-ratelimit-reset-tokens": "2.5"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "soon"}, None),
        ({"x-ratelimit-remaining-tokens": "0"}, None),
        ({}, None),
        *(
            ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": text}, None)
            for text in ("inf", "nan", "1e400", "9" * 400, "1_0", "٧", "-3", "1764564000", "9" * 400 + "s", "366d")
        ),
    ],
)
def test_what_providers_say_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert seconds_until_allowed(CIMultiDict(headers)) == seconds


def ask_all(headers: dict[str, str], give_up_after: float) -> tuple[float, list[str]]:
    """Seconds that three questions take, one after another, to a server whose replies have these headers."""
    time, told = VirtualTime(), list[str]()

    async def ask() -> float:
        spec = ModelSpec(base_url="http://host", model="m", give_up_after=give_up_after)
        model = OpenAIModel(spec, api_key=None, clock=time.clock, sleep=time.sleep, tell=told.append)
        async with model:

            async def attempt(payload: bytes, read: Callable[[bytes], Any]) -> Any:
                model.endpoints[0].used_up_for = seconds_until_allowed(CIMultiDict(headers))
                return read(json.dumps(reply_with("fine", json.loads(payload))).encode())

            model.endpoints[0].__dict__["attempt"] = attempt
            start = time.clock()
            for number in range(3):
                assert isinstance(await model.ask(request(number)), Answer)
            return time.clock() - start

    return asyncio.run(time.run(ask())), told


def test_what_is_used_up_is_waited_for_and_that_is_told() -> None:
    seconds, told = ask_all({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "40s"}, 300)
    assert seconds == pytest.approx(80)
    assert told == ["http://host allows nothing more for 40 s (by its x-ratelimit headers)"] * 3


@pytest.mark.parametrize("reset", ["23h12m", "83520", "1764564000", "inf"])
def test_a_quota_that_is_longer_than_the_limit_is_not_waited_for_in_silence(reset: str) -> None:
    """The server will refuse the next request, and that ends the run with its words."""
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": reset}
    assert ask_all(headers, 300) == (0, [])


@pytest.mark.slow
def test_a_run_keeps_to_its_pace(tmp_path: Path) -> None:
    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        evaluation = evaluate(
            Specification(
                tasks=("counting",),
                model=ModelSpec(base_url=server.url, model="scripted", requests_per_minute=1200),
                options=TaskOptions(include_path=str(TASKS)),
                output_dir=str(tmp_path),
            )
        )
        times = sorted(request.time for request in server.requests)
    assert evaluation.failures == ()
    assert times[-1] - times[0] >= (len(times) - 1) * 60 / 1200 - 0.1


def test_a_rate_must_be_one(tmp_path: Path) -> None:
    from assay.errors import SpecificationError
    from assay.specification import validate_model

    fields: dict[str, Any] = {"requests_per_minute": 0}
    with pytest.raises(SpecificationError, match="requests_per_minute is 0"):
        validate_model(ModelSpec(base_url="http://localhost:1", model="m", **fields))
