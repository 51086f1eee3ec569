"""Streamed answers against a real server on a real socket: the same answers, and what goes wrong with streams alone."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from assay.client.openai import OpenAIModel
from assay.client.retry import NOT_NOW
from assay.types import Answer, EndpointKind, Failure, FailureCause, ModelSpec, Request, Response, TextTail
from tests.client.clocks import FastTime
from tests.client.test_openai import FAILURES, HARMLESS, HEAVY, SLOW, expected, request, texts
from tests.servers.faults import STREAM_FAULTS
from tests.servers.scripted import Fault, ScriptedServer


def ask(url: str, requests: Sequence[Request], **options: Any) -> list[Response]:
    """All responses, asked one after another and streamed."""

    async def run() -> list[Response]:
        time = FastTime(200.0)
        spec = ModelSpec(base_url=url, model="scripted-model", stream=True, max_attempts=2)
        spec = msgspec.structs.replace(spec, **options)
        async with OpenAIModel(spec, api_key=None, clock=time.clock, sleep=time.sleep) as model:
            return [await model.ask(one) for one in requests]

    return asyncio.run(run())


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_answers_are_the_same_but_for_the_time_to_the_first_token(endpoint: EndpointKind) -> None:
    requests = [request(n, endpoint) for n in range(8)]
    with ScriptedServer() as server:
        streamed = ask(server.url, requests, endpoint=endpoint)
        whole = ask(server.url, requests, endpoint=endpoint, stream=False)
    assert texts(streamed) == texts(whole) == expected(requests)
    for one, other in zip(streamed, whole, strict=True):
        assert isinstance(one, Answer)
        assert isinstance(other, Answer)
        assert one.ttft is not None
        assert 0 < one.ttft <= one.latency
        assert other.ttft is None
        assert (one.finish_reason, one.prompt_tokens, one.completion_tokens) == (
            other.finish_reason,
            other.prompt_tokens,
            other.completion_tokens,
        )


def test_what_is_asked_is_what_is_asked_unstreamed_and_the_stream() -> None:
    with ScriptedServer() as server:
        ask(server.url, [request(1)])
        [received] = server.requests
    asked = json.loads(request(1).payload)
    assert received.body == {**asked, "stream": True, "stream_options": {"include_usage": True}}


def test_log_likelihoods_are_not_streamed() -> None:
    payload = b'{"model": "scripted-model", "prompt": "one two", "echo": true}'
    scored = Request("task", 0, 0, 0, "loglikelihood", payload, "key", TextTail(" two"))
    with ScriptedServer() as server:
        ask(server.url, [scored], endpoint="completions")
        assert {received.raw for received in server.requests} == {payload}


@pytest.mark.parametrize("kind", sorted(HARMLESS.keys() - HEAVY))
def test_harmless_oddities_are_the_same_answers(kind: str) -> None:
    requests = [request(n) for n in range(3)]
    with ScriptedServer(faults=[Fault(kind)]) as server:
        streamed, whole = ask(server.url, requests), ask(server.url, requests, stream=False)
    # Whether there is no content or an empty one, a stream does not always tell; both are scored as an empty answer.
    assert [text or "" for text in texts(streamed)] == [text or "" for text in texts(whole)]
    for one, other in zip(streamed, whole, strict=True):
        assert isinstance(one, Answer)
        assert isinstance(other, Answer)
        assert (one.finish_reason, one.reasoning) == (other.finish_reason, other.reasoning)


@pytest.mark.parametrize("kind", sorted(FAILURES.keys() - HEAVY - SLOW))
def test_what_befalls_whole_replies_is_the_same_failure(kind: str) -> None:
    cause, status, passing = FAILURES[kind]
    with ScriptedServer(faults=[Fault(kind, indices=frozenset({0, 1}))]) as server:
        [response] = ask(server.url, [request(1)], give_up_after=5 if status in NOT_NOW else 300)
        assert isinstance(response, Failure)
        assert response.cause == cause
        if status not in NOT_NOW:  # With those it waits for a short question to be answered.
            assert response.attempts == (2 if passing else 1)
        if status is not None:
            assert response.status == status
    if passing:
        with ScriptedServer(faults=[Fault(kind, first=1)]) as server:
            assert texts(ask(server.url, [request(1)])) == expected([request(1)])


STREAM_FAILURES = {
    "stream_cut": FailureCause.RESET,
    "stream_reset": FailureCause.RESET,
    "stream_error": FailureCause.ERROR_IN_REPLY,
    "stream_garbage": FailureCause.MALFORMED_REPLY,
    "stream_of_nothing": FailureCause.EMPTY_CHOICES,
    "stream_stall": FailureCause.TIMED_OUT,
}
HARMLESS_STREAMS = {
    "stream_ignored",
    "stream_options_refused",
    "stream_without_done",
    "stream_with_comments",
    "stream_reset_when_done",
    "stream_hangs_when_done",
}


def test_every_fault_of_streams_is_tested() -> None:
    assert {*STREAM_FAILURES, *HARMLESS_STREAMS} == STREAM_FAULTS


@pytest.mark.parametrize("kind", STREAM_FAILURES)
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_stream_that_breaks_off_is_a_failure_and_asked_again(kind: str, endpoint: EndpointKind) -> None:
    one = request(1, endpoint)
    options: dict[str, Any] = {"endpoint": endpoint, "stall_timeout": 0.3}
    with ScriptedServer(faults=[Fault(kind, seconds=30)]) as server:
        [response] = ask(server.url, [one], **options)
        assert isinstance(response, Failure)
        assert (response.cause, response.attempts) == (STREAM_FAILURES[kind], 2)
    with ScriptedServer(faults=[Fault(kind, first=1, seconds=30)]) as server:
        [response] = ask(server.url, [one], **options)
        assert isinstance(response, Answer)
        assert (response.text, response.attempts) == (expected([one])[0], 2)


@pytest.mark.parametrize("kind", sorted(HARMLESS_STREAMS))
def test_odd_streams_are_answers(kind: str) -> None:
    requests = [request(n) for n in range(3)]
    with ScriptedServer(faults=[Fault(kind, seconds=30)]) as server:
        assert texts(ask(server.url, requests, stall_timeout=0.3)) == expected(requests)
        # Refused once, `stream_options` is not tried again.
        assert server.count == (4 if kind == "stream_options_refused" else 3)


def test_a_stall_is_not_the_wait_for_a_slow_server() -> None:
    with ScriptedServer(latency=0.6) as server:
        assert texts(ask(server.url, [request(1)], stall_timeout=0.3)) == expected([request(1)])


def test_a_request_that_is_refused_for_itself_is_tried_once_without_token_counts() -> None:
    with ScriptedServer(faults=[Fault("http_400", indices=frozenset({0, 1}))]) as server:
        refused, answered = ask(server.url, [request(1), request(2)])
        assert isinstance(refused, Failure)
        assert isinstance(answered, Answer)
        assert answered.completion_tokens is not None
        assert server.count == 3
