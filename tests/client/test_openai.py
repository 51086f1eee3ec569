"""The client against a real server on a real socket, well-behaved and not."""

import asyncio
import json
import logging
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from assay.client.auto_concurrency import concurrency_of
from assay.client.concurrency import Concurrency
from assay.client.openai import OpenAIModel
from assay.client.retry import NOT_NOW
from assay.errors import ServerRefusedError, ServerUnreachableError, SpecificationError
from assay.types import Answer, EndpointKind, Failure, FailureCause, ModelSpec, Request, Response
from tests.client.clocks import PATIENT, FastTime
from tests.servers.faults import STREAM_FAULTS
from tests.servers.scripted import FAULT_KINDS, Fault, ScriptedServer, number_for, reply_with

KEY = "sk-very-secret-0123456789"


def request(number: int, endpoint: EndpointKind = "chat") -> Request:
    prompt = f"What is {number} + {number}?"
    said: dict[str, Any] = (
        {"messages": [{"role": "user", "content": prompt}]} if endpoint == "chat" else {"prompt": prompt}
    )
    body = {**said, "model": "scripted-model", "max_tokens": 16, "temperature": 0, "stop": ["\n\n"], "seed": 1234}
    return Request("task", number, 0, 0, "generate_until", json.dumps(body).encode(), f"key-{number}")


async def ask(
    url: str,
    requests: Sequence[Request],
    *,
    concurrency: int = 16,
    max_attempts: int = 3,
    request_timeout: float = 20.0,
    endpoint: EndpointKind = "chat",
    speed: float = 200.0,
    api_key: str | None = KEY,
    stream: bool = False,
    give_up_after: float = 300.0,
) -> list[Response]:
    """All responses, in the order of the requests, as an engine with `concurrency` workers gets them."""
    time = FastTime(speed)
    spec = ModelSpec(
        base_url=url,
        model="scripted-model",
        endpoint=endpoint,
        concurrency=concurrency,
        max_attempts=max_attempts,
        request_timeout=request_timeout,
        stream=stream,
        give_up_after=give_up_after,
    )
    responses: dict[int, Response] = {}
    todo = list(enumerate(requests))[::-1]
    async with OpenAIModel(spec, api_key=api_key, clock=time.clock, sleep=time.sleep) as model:

        async def work() -> None:
            while todo:
                place, one = todo.pop()
                responses[place] = await model.ask(one)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    return [responses[place] for place in range(len(requests))]


def texts(responses: Sequence[Response]) -> list[str | None]:
    return [response.text if isinstance(response, Answer) else repr(response) for response in responses]


def expected(requests: Sequence[Request]) -> list[str]:
    return [number_for(json.loads(request.payload)) for request in requests]


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_answers(endpoint: EndpointKind) -> None:
    with ScriptedServer() as server:
        requests = [request(n, endpoint) for n in range(50)]
        responses = asyncio.run(ask(server.url, requests, endpoint=endpoint))
        assert texts(responses) == expected(requests)
        assert {received.path for received in server.requests} == {
            "/v1/chat/completions" if endpoint == "chat" else "/v1/completions"
        }
        first = responses[0]
        assert isinstance(first, Answer)
        assert (first.finish_reason, first.prompt_tokens, first.completion_tokens) == ("stop", 10, 4)
        assert (first.attempts, first.model, first.reasoning) == (1, None, None)
        assert first.latency > 0


def test_another_model_name_in_the_reply_is_noted() -> None:
    reply = {"model": "other@main", "choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}
    with ScriptedServer(answer=lambda _: reply) as server:
        [response] = asyncio.run(ask(server.url, [request(1)]))
        assert isinstance(response, Answer)
        assert response.model == "other@main"


def test_the_server_cannot_tell_it_from_lm_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same bytes, same content type, same authorization, with a key and without."""
    from aiohttp import ClientSession
    from lm_eval.models.openai_completions import LocalChatCompletion

    messages = [{"role": "user", "content": 'é 中 🎉 "quoted" \u2028 </s>\n\ttab'}]
    with ScriptedServer() as server:

        async def lm_eval_asks() -> None:
            model = LocalChatCompletion(model="scripted-model", base_url=f"{server.url}/v1/chat/completions")
            gen_kwargs = {"until": ["\n", "Q:"], "temperature": 0.0, "top_p": 0.95, "max_gen_toks": 7}
            async with ClientSession() as session:
                await model.amodel_call(session, asyncio.Semaphore(1), [messages], gen_kwargs=gen_kwargs)

        for key in ("sk-key", ""):
            monkeypatch.setenv("OPENAI_API_KEY", key)
            asyncio.run(lm_eval_asks())
            theirs = server.requests[-1]
            asyncio.run(
                ask(
                    server.url,
                    [Request("t", 0, 0, 0, "generate_until", json.dumps(theirs.body).encode(), "k")],
                    api_key=key or None,
                )
            )
            ours = server.requests[-1]
            assert ours is not theirs
            assert ours.raw == theirs.raw
            for header in ("content-type", "authorization", "content-length", "accept"):
                assert ours.headers[header] == theirs.headers[header]


HARMLESS: dict[str, str | None] = {
    "wrong_content_type": "same",
    "large_reply": "same",
    "close_when_idle": "same",
    "content_in_parts": "same",
    "unasked_stream": "same",
    "null_content": None,
    "null_content_with_reasoning": None,
    "tool_call": None,
    "empty_content": "",
    "truncated": "The answer is",
}
"""Oddities that are answers all the same, and their text."""

FAILURES: dict[str, tuple[FailureCause, int | None, bool]] = {
    "http_400": (FailureCause.BAD_REQUEST, 400, False),
    "http_400_context": (FailureCause.CONTEXT_TOO_LONG, 400, False),
    "http_401": (FailureCause.UNAUTHORISED, 401, False),
    "http_401_echo": (FailureCause.UNAUTHORISED, 401, False),
    "http_403": (FailureCause.UNAUTHORISED, 403, False),
    "http_404": (FailureCause.NOT_FOUND, 404, False),
    "http_408": (FailureCause.TIMED_OUT, 408, True),
    "http_422": (FailureCause.BAD_REQUEST, 422, False),
    "http_429": (FailureCause.RATE_LIMITED, 429, True),
    "http_429_date": (FailureCause.RATE_LIMITED, 429, True),
    "http_500": (FailureCause.SERVER_ERROR, 500, True),
    "http_502": (FailureCause.SERVER_ERROR, 502, True),
    "http_503": (FailureCause.SERVER_ERROR, 503, True),
    "reset": (FailureCause.RESET, None, True),
    "close_before_reply": (FailureCause.RESET, None, True),
    "close_mid_body": (FailureCause.RESET, None, True),
    "content_length_too_long": (FailureCause.RESET, None, True),
    "content_length_too_short": (FailureCause.MALFORMED_REPLY, None, True),
    "not_http": (FailureCause.MALFORMED_REPLY, None, True),
    "malformed_json": (FailureCause.MALFORMED_REPLY, 200, True),
    "html": (FailureCause.MALFORMED_REPLY, 200, True),
    "no_message": (FailureCause.MALFORMED_REPLY, 200, True),
    "unreadable_content": (FailureCause.UNREADABLE_REPLY, 200, False),
    "broken_gzip": (FailureCause.MALFORMED_REPLY, 200, True),
    "gzip_bomb": (FailureCause.MALFORMED_REPLY, 200, True),
    "endless": (FailureCause.MALFORMED_REPLY, 200, True),
    "empty_choices": (FailureCause.EMPTY_CHOICES, 200, True),
    "error_in_reply": (FailureCause.ERROR_IN_REPLY, 500, True),
    "aborted": (FailureCause.ERROR_IN_REPLY, 200, True),
    "redirect": (FailureCause.BAD_REQUEST, 307, False),
    "hang": (FailureCause.TIMED_OUT, None, True),
    "hang_mid_body": (FailureCause.TIMED_OUT, None, True),
    "drip": (FailureCause.TIMED_OUT, None, True),
}
"""What each fault becomes if it persists: cause, status, and whether it is tried again."""

SLOW = {"hang", "hang_mid_body", "drip"}
HEAVY = {"gzip_bomb", "endless", "large_reply"}


def test_every_fault_of_the_server_is_tested() -> None:
    assert {*HARMLESS, *FAILURES} == FAULT_KINDS.keys() - STREAM_FAULTS


@pytest.mark.parametrize("kind", HARMLESS)
def test_harmless_oddities_are_answers(kind: str) -> None:
    requests = [request(n) for n in range(2 if kind in HEAVY else 6)]
    with ScriptedServer(faults=[Fault(kind)]) as server:
        responses = asyncio.run(ask(server.url, requests, concurrency=2))
        text = HARMLESS[kind]
        assert texts(responses) == (expected(requests) if text == "same" else [text] * len(requests))
        assert server.count == len(requests)


def test_what_else_odd_answers_hold() -> None:
    faults = [Fault("null_content_with_reasoning", indices=frozenset({0})), Fault("tool_call", indices=frozenset({1}))]
    with ScriptedServer(faults=faults) as server:
        thought, called = asyncio.run(ask(server.url, [request(0), request(1)], concurrency=1))
        assert isinstance(thought, Answer)
        assert (thought.reasoning, thought.finish_reason) == ("Let me think.", "length")
        assert isinstance(called, Answer)
        assert called.finish_reason == "tool_calls"


@pytest.mark.parametrize("kind", FAILURES)
def test_a_persistent_fault_is_a_failure_of_its_kind_and_of_its_requests_only(kind: str) -> None:
    cause, status, passing = FAILURES[kind]
    requests = [request(n) for n in range(5)]
    faults = [Fault(kind, indices=frozenset({1, 3}), seconds=30 if kind in SLOW else 2)]
    with ScriptedServer(faults=faults) as server:
        # One at a time, so that the server's order of bodies is ours.
        responses = asyncio.run(
            ask(
                server.url,
                requests,
                concurrency=1,
                max_attempts=2,
                request_timeout=0.5 if kind in SLOW else 20,
                give_up_after=5 if status in NOT_NOW else 300,
            )
        )
        for place, response in enumerate(responses):
            if place in (1, 3):
                assert isinstance(response, Failure)
                assert response.cause == cause
                if kind != "content_length_too_short":  # Which of two errors is seen first is a matter of timing.
                    assert response.status == status
                if status not in NOT_NOW:  # With those it waits for a short question to be answered.
                    assert response.attempts == (2 if passing else 1)
                assert response.message
                assert KEY not in repr(response)
            else:
                assert texts([response]) == expected([requests[place]])
        tries = Counter(received.raw for received in server.requests)
        if status not in NOT_NOW:
            assert sorted(tries.values()) == sorted([1, 1, 1] + [2 if passing else 1] * 2)


@pytest.mark.parametrize("kind", [kind for kind, (_, _, passing) in FAILURES.items() if passing])
def test_a_passing_fault_changes_no_answer(kind: str) -> None:
    requests = [request(n) for n in range(3 if kind in HEAVY else 20)]
    fault = Fault(kind, fraction=1.0 if kind in HEAVY else 0.3, first=2, seconds=30 if kind in SLOW else 2)
    with ScriptedServer(faults=[fault]) as server:
        responses = asyncio.run(ask(server.url, requests, concurrency=4, request_timeout=0.5 if kind in SLOW else 20))
        assert texts(responses) == expected(requests)
        hit = sum(isinstance(response, Answer) and response.attempts == 3 for response in responses)
        assert hit >= 2
        assert server.count == len(requests) + 2 * hit


def test_a_slow_drip_within_the_time_out_is_an_answer() -> None:
    with ScriptedServer(faults=[Fault("drip", seconds=0.3)]) as server:
        assert texts(asyncio.run(ask(server.url, [request(1)]))) == expected([request(1)])


def test_the_time_out_does_not_count_the_wait_for_others() -> None:
    """64 at once on a server that takes 0.2 s each: none may time out at 1 s, however they share the machine."""
    requests = [request(n) for n in range(256)]
    with ScriptedServer(latency=0.2) as server:
        responses = asyncio.run(ask(server.url, requests, concurrency=64, request_timeout=1.0, max_attempts=1))
        assert texts(responses) == expected(requests)
        assert server.most_at_once == 64


def test_a_retry_after_is_honoured() -> None:
    with ScriptedServer(faults=[Fault("http_429", first=1, seconds=60)]) as server:
        asyncio.run(ask(server.url, [request(1)], speed=100))
        first, second = server.requests
        assert second.time - first.time >= 60 / 100


def test_an_idle_connection_that_the_server_closed_costs_nothing() -> None:
    async def with_a_pause(url: str) -> list[Response]:
        spec = ModelSpec(base_url=url, model="m", max_attempts=1)
        async with OpenAIModel(spec, api_key=None) as model:
            responses = []
            for number in range(3):
                responses.append(await model.ask(request(number)))
                await asyncio.sleep(0.05)
            return responses

    with ScriptedServer(faults=[Fault("close_when_idle")]) as server:
        assert texts(asyncio.run(with_a_pause(server.url))) == expected([request(n) for n in range(3)])


def test_a_body_of_megabytes_is_sent() -> None:
    large = Request("t", 0, 0, 0, "generate_until", json.dumps({"prompt": "x" * 3_000_000, "model": "m"}).encode(), "k")
    with ScriptedServer() as server:
        [response] = asyncio.run(ask(server.url, [large], endpoint="completions"))
        assert isinstance(response, Answer)
        assert server.requests[0].raw == large.payload


# --- outages -----------------------------------------------------------------------------------------------------


def _ask_through_an_outage(server: ScriptedServer, begin: Any, end: Any, **options: Any) -> None:
    """200 requests at 200-fold speed, and an outage of 90 s (0.45 s) after the fiftieth arrived."""
    requests = [request(n) for n in range(200)]

    def outage() -> None:
        while server.count < 50:
            threading.Event().wait(0.001)
        begin()
        threading.Event().wait(90 / 200)
        end()

    thread = threading.Thread(target=outage, daemon=True)
    thread.start()
    responses = asyncio.run(ask(server.url, requests, give_up_after=PATIENT, **options))
    thread.join()
    assert texts(responses) == expected(requests)
    # What was under way when the server went is asked again; nothing that was answered is.
    again = Counter(json.dumps(body) for body in server.answered)
    assert set(again.values()) == {1}


def test_a_restart_in_the_middle_costs_only_time() -> None:
    with ScriptedServer(latency=0.002) as server:
        _ask_through_an_outage(server, server.stop, server.start, max_attempts=2)


@pytest.mark.parametrize("outage", ["loading", "bad_gateway", "dropping"])
def test_so_does_a_server_that_is_down_behind_an_open_port(outage: Any) -> None:
    with ScriptedServer(latency=0.002) as server:
        _ask_through_an_outage(
            server, lambda: setattr(server, "outage", outage), lambda: setattr(server, "outage", None), max_attempts=2
        )


def test_and_an_outage_that_a_gateway_hides_from_look_ups_is_outlasted() -> None:
    with ScriptedServer(latency=0.002) as server:
        requests = [request(n) for n in range(60)]

        def outage() -> None:
            while server.count < 20:
                threading.Event().wait(0.001)
            server.faults = (Fault("http_503"),)
            threading.Event().wait(55 / 200)
            server.faults = ()

        thread = threading.Thread(target=outage, daemon=True)
        thread.start()
        responses = asyncio.run(ask(server.url, requests, max_attempts=8, give_up_after=PATIENT))
        thread.join()
        assert texts(responses) == expected(requests)


def test_a_server_that_is_not_there_is_given_up() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(ask(url, [request(n) for n in range(8)], concurrency=4, speed=1000))
    assert caught.group_contains(ServerUnreachableError, match=rf"{url} .*refused")


def test_a_server_that_speaks_no_tls_is_given_up() -> None:
    with ScriptedServer() as server, pytest.raises(ExceptionGroup) as caught:
        asyncio.run(ask(server.url.replace("http:", "https:"), [request(1)], concurrency=1, speed=1000))
    assert caught.group_contains(ServerUnreachableError, match="https://127.0.0.1")


def test_a_wrong_key_ends_the_run_after_a_few_requests() -> None:
    with ScriptedServer(api_key="another") as server:
        with pytest.raises(ExceptionGroup) as caught:
            asyncio.run(ask(server.url, [request(n) for n in range(50)], concurrency=1))
        assert caught.group_contains(ServerRefusedError, match="401.*OPENAI_API_KEY")
        assert server.count == 4  # The last one is a short question, which might be answered where the others are not.


def test_a_refusal_among_answers_does_not() -> None:
    requests = [request(n) for n in range(30)]
    with ScriptedServer(faults=[Fault("http_401", indices=frozenset(range(5, 15)))]) as server:
        responses = asyncio.run(ask(server.url, requests, concurrency=1))
        assert sum(isinstance(response, Failure) for response in responses) == 10


def test_cancelling_ends_at_once_and_leaves_nothing_open() -> None:
    async def cancel_soon(url: str) -> None:
        async with OpenAIModel(ModelSpec(base_url=url, model="m"), api_key=None) as model:
            tasks = [asyncio.create_task(model.ask(request(n))) for n in range(8)]
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)

    with ScriptedServer(faults=[Fault("hang", seconds=60)]) as server:
        asyncio.run(cancel_soon(server.url))


# --- secrets ------------------------------------------------------------------------------------------------------


def test_the_key_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    model = OpenAIModel(ModelSpec(base_url="http://host", model="m"), api_key=KEY)
    assert KEY not in repr(model)
    assert KEY not in str(model.spec)
    with ScriptedServer(faults=[Fault("http_401_echo")]) as server:
        with pytest.raises(ExceptionGroup) as caught:
            asyncio.run(ask(server.url, [request(n) for n in range(9)], concurrency=1))
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(caught.value.exceptions)
    assert KEY not in caplog.text


@pytest.mark.parametrize("stream", [False, True])
def test_the_key_is_blanked_in_answers_that_repeat_it(stream: bool) -> None:
    def careless(body: dict[str, Any]) -> dict[str, Any]:
        return {**reply_with(f"you sent {KEY}", body), "model": f"scripted-model for {KEY}"}

    with ScriptedServer(answer=careless) as server:
        [answer] = asyncio.run(ask(server.url, [request(1)], stream=stream))
        [word] = asyncio.run(ask(server.url, [request(1)], stream=stream, api_key="sent"))
    assert isinstance(answer, Answer)
    assert isinstance(word, Answer)
    assert (answer.text, answer.model) == ("you sent ***", "scripted-model for ***")
    assert word.text == f"you sent {KEY}"


def test_the_key_does_not_follow_a_redirect() -> None:
    with ScriptedServer() as elsewhere:
        target = f"{elsewhere.url}/v1/chat/completions?was={KEY}"
        with ScriptedServer(faults=[Fault("redirect", text=target)]) as server:
            [response] = asyncio.run(ask(server.url, [request(1)]))
            assert isinstance(response, Failure)
            assert elsewhere.url in response.message
            assert KEY not in response.message
        assert elsewhere.count == 0


@pytest.mark.parametrize("key", ["sk-a\nHost: evil", "sk-\x00", "schlüssel-geheim"])
def test_a_key_that_fits_no_header_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(SpecificationError, match="OPENAI_API_KEY") as refused:
        OpenAIModel(ModelSpec(base_url="http://host", model="m"), api_key=key)
    assert key not in str(refused.value)


def test_a_line_end_after_the_key_is_dropped() -> None:
    with ScriptedServer(api_key=KEY) as server:
        [response] = asyncio.run(ask(server.url, [request(1)], api_key=f"{KEY}\n"))
        assert isinstance(response, Answer)


# --- proxies ------------------------------------------------------------------------------------------------------


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer() as proxy:
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//user:pass-word@"))
        [response] = asyncio.run(ask("http://model.invalid", [request(1)]))
        assert isinstance(response, Answer)
        assert proxy.requests[0].headers["host"] == "model.invalid"
        assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")


def test_a_proxy_that_sees_the_key_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async def remarks(url: str) -> list[str]:
        async with OpenAIModel(ModelSpec(base_url=url, model="scripted-model"), api_key=KEY) as model:
            return (await model.run_preflight()).remarks

    with ScriptedServer() as proxy:
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//user:pass-word@"))
        [remark] = asyncio.run(remarks("http://model.invalid"))
        assert remark.startswith(f"http://model.invalid is asked through the proxy {proxy.url.partition('//')[2]}")
        assert "NO_PROXY" in remark
        assert "pass-word" not in remark
        proxy.api_key = "another"
        [response] = asyncio.run(ask("http://model.invalid", [request(1)]))
        assert isinstance(response, Failure)
        assert "chat/completions (through the proxy 127.0.0.1:" in response.message
        proxy.api_key = None
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert asyncio.run(remarks(proxy.url)) == []


def test_no_proxy_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ScriptedServer() as server:
        [response] = asyncio.run(ask(server.url, [request(1)]))
        assert isinstance(response, Answer)


def test_a_proxy_that_is_not_there_is_what_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look() -> None:
        async with OpenAIModel(ModelSpec(base_url="http://model.example", model="m"), api_key=None) as model:
            await model.server_info()

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(ServerUnreachableError, match=r"cannot be asked \(no connection to the proxy .* proxy running"):
        asyncio.run(look())


def test_a_proxy_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(SpecificationError, match="HTTP_PROXY"):
        OpenAIModel(ModelSpec(base_url="http://model.invalid", model="m"), api_key=None)


def test_overload_lowers_the_limit_and_requests_wait_for_room_to_try_again() -> None:
    """Sixteen are out when the server says 429 to each once; of their second attempts at most eight are out at once."""
    most = 0

    async def ask_all_of_them(url: str) -> Concurrency:
        nonlocal most
        time = FastTime(200)
        spec = ModelSpec(base_url=url, model="scripted-model", request_timeout=20.0)
        concurrency = concurrency_of(spec)
        async with OpenAIModel(spec, api_key=KEY, concurrency=concurrency, clock=time.clock, sleep=time.sleep) as model:

            async def one(number: int) -> None:
                nonlocal most
                sent = concurrency.sent(time.clock())
                response = await model.ask(request(number))
                if concurrency.limit < 16:
                    most = max(most, concurrency.in_flight)
                concurrency.ended(sent, "task", response, time.clock())

            async with asyncio.TaskGroup() as group:
                for number in range(16):
                    group.create_task(one(number))
        return concurrency

    with ScriptedServer(latency=lambda body: 0.02, faults=[Fault("http_429", first=1)]) as server:
        concurrency = asyncio.run(ask_all_of_them(server.url))
    assert concurrency.summary()["falls"] == {"rate_limited": 1}
    assert concurrency.limit == 8
    assert 0 < most <= 8
