"""A base URL that can be read in two ways: the server tells which is meant."""

import asyncio
from typing import Any

import pytest
import yarl

from assay.client.addresses import Addresses
from assay.client.openai import OpenAIModel
from assay.client.probe import Capability, Seen, probe
from assay.client.retry import Fault, NetworkError, Retryability
from assay.client.transport import HTTPReply
from assay.errors import ServerRefusedError
from assay.types import Answer, Failure, FailureCause, ModelSpec
from tests.client.test_openai import ask, expected, request, texts
from tests.servers import faults
from tests.servers.scripted import ScriptedServer

BASE = "http://host/openai"
WITH, WITHOUT = f"{BASE}/v1/chat/completions", f"{BASE}/chat/completions"


def reply(status: int, body: bytes = b"{}", kind: str = "application/json") -> HTTPReply:
    return HTTPReply(status, [(b"Content-Type", kind.encode())], body)


class Server:
    """Replies by address, and 404 at all others."""

    def __init__(self, **replies: Any) -> None:
        self.replies = replies
        self.asked: list[str] = []

    async def send(self, url: yarl.URL) -> HTTPReply:
        self.asked.append(str(url))
        given = self.replies.get("with_version" if "/v1/" in url.path else "without", reply(404, b"Not Found"))
        if isinstance(given, Exception):
            raise given
        assert isinstance(given, HTTPReply)
        return given


def statuses(server: Server, times: int = 1, base_url: str = BASE) -> list[int]:
    async def run() -> list[int]:
        addresses = Addresses(base_url)
        return [(await addresses.ask("chat", server.send)).status for _ in range(times)]

    return asyncio.run(run())


def test_the_likelier_reading_is_all_that_is_asked_where_it_is_right() -> None:
    server = Server(with_version=reply(200), without=reply(200))
    assert statuses(server, 2) == [200, 200]
    assert server.asked == [WITH, WITH]


@pytest.mark.parametrize("status", [200, 400, 401, 422, 429, 500])
def test_the_other_is_taken_for_good_where_only_that_is_known(status: int) -> None:
    server = Server(without=reply(status))
    assert statuses(server, 3) == [status] * 3
    assert server.asked == [WITH, WITHOUT, WITHOUT, WITHOUT]


@pytest.mark.parametrize(
    "elsewhere",
    [
        reply(404),
        reply(405),
        reply(403),
        reply(301),
        reply(200, b"<!doctype html>", "text/html; charset=utf-8"),
        NetworkError(Fault(FailureCause.RESET, "closed", Retryability.UNSURE)),
    ],
)
def test_what_is_no_endpoint_is_not_taken_for_one(elsewhere: Any) -> None:
    server = Server(without=elsewhere)
    assert statuses(server, 2) == [404, 404]
    assert server.asked == [WITH, WITHOUT] * 2


def test_a_model_that_is_not_there_is_no_address_that_is_not_there() -> None:
    server = Server(with_version=reply(404, b'{"error": "The model `m` does not exist."}'), without=reply(200))
    assert statuses(server) == [404]
    assert server.asked == [WITH]


def test_a_404_after_an_answer_does_not_make_it_doubt() -> None:
    server = Server(with_version=reply(200))
    addresses = Addresses(BASE)

    async def run() -> HTTPReply:
        await addresses.ask("chat", server.send)
        server.replies = {"without": reply(200)}
        return await addresses.ask("chat", server.send)

    assert asyncio.run(run()).status == 404
    assert server.asked == [WITH, WITH]


def test_requests_under_way_when_the_other_is_found_follow_it() -> None:
    server = Server(without=reply(200))
    addresses = Addresses(BASE)

    async def send(url: yarl.URL) -> HTTPReply:
        await asyncio.sleep(0.01 if "/v1/" in url.path else 0)
        return await server.send(url)

    async def run() -> list[HTTPReply]:
        return await asyncio.gather(*(addresses.ask("chat", send) for _ in range(5)))

    assert [one.status for one in asyncio.run(run())] == [200] * 5


@pytest.mark.parametrize("base_url", ["http://host/v1", "http://host/x/chat/completions"])
def test_a_plain_address_is_asked_alone(base_url: str) -> None:
    server = Server()
    assert statuses(server, base_url=base_url) == [404]
    assert len(server.asked) == 1


@pytest.mark.parametrize("under", ["/v1", "", "/openai", "/openai/v1", "/v1beta/openai", "/v1beta/openai/v1"])
@pytest.mark.parametrize("stream", [False, True])
def test_answers_come_whichever_reading_is_right(under: str, stream: bool) -> None:
    requests = [request(n) for n in range(4)]
    with ScriptedServer(under=under) as server:
        responses = asyncio.run(ask(f"{server.url}{under.removesuffix('/v1')}", requests, stream=stream))
    assert texts(responses) == expected(requests)


def test_the_list_of_models_settles_it_before_the_first_question() -> None:
    async def run(url: str) -> None:
        spec = ModelSpec(base_url=url, model="scripted-model")
        async with OpenAIModel(spec, api_key=None) as model:
            assert [served.id for served in (await model.server_info()).models] == ["scripted-model"]
            assert isinstance(await model.ask(request(1)), Answer)

    with ScriptedServer(under="/openai") as server:
        asyncio.run(run(f"{server.url}/openai"))
    asked = [received.path for received in server.requests if received.body]
    assert asked == ["/openai/chat/completions"]


def test_every_address_asked_is_in_the_error() -> None:
    with ScriptedServer(under="/elsewhere") as server:
        url = f"{server.url}/openai"
        [response] = asyncio.run(ask(f"{url}?api_key=secret-in-the-query", [request(1)]))
        assert isinstance(response, Failure)
        assert f"HTTP 404 at {url}/v1/chat/completions?api_key=*** and {url}/chat/completions?" in response.message
        assert "secret-in" not in response.message
        with pytest.raises(ExceptionGroup) as caught:
            asyncio.run(ask(url, [request(n) for n in range(5)], concurrency=1))
    assert caught.group_contains(ServerRefusedError, match=f"{url}/v1/chat/completions and {url}/chat/completions")


def test_so_it_is_of_a_page_for_people() -> None:
    with ScriptedServer(faults=[faults.Fault("html")]) as server:
        [response] = asyncio.run(ask(f"{server.url}/v1", [request(1)], max_attempts=1))
        assert isinstance(response, Failure)
        assert response.message.startswith(f"{server.url}/v1/chat/completions: not a reply of the protocol")
        assert "<title>Log in" in response.message


def test_a_redirect_is_told_with_both_addresses_and_without_secrets() -> None:
    target = "https://user:hunter22@elsewhere/v1/chat/completions?api_key=hunter22"
    with ScriptedServer(faults=[faults.Fault("redirect", text=target)]) as server:
        [response] = asyncio.run(ask(server.url, [request(1)]))
    assert isinstance(response, Failure)
    assert f"redirected (307) from {server.url}/v1/chat/completions to https://***@elsewhere" in response.message
    assert "https://***@elsewhere/v1/chat/completions?api_key=***" in response.message
    assert "hunter22" not in response.message


def test_the_probe_looks_at_the_right_one() -> None:
    with ScriptedServer(under="/openai") as server:
        spec = ModelSpec(base_url=f"{server.url}/openai", model="scripted-model")
        report = probe(spec, quick=True)
    assert report.url == f"{server.url}/openai"
    assert report.findings[Capability.MODEL_LIST].seen is Seen.YES
    assert report.findings[Capability.CHAT].seen is Seen.YES
