"""What is sent with every request."""

import asyncio
from typing import Any

import pytest

from assay.client.headers import request_headers
from assay.client.openai import OpenAIModel
from assay.client.probe import probe_async
from assay.client.user_headers import header_values, literal, without_values
from assay.types import ModelSpec, Request
from tests.servers.scripted import ScriptedServer
from tests.servers.wire import Received, Wire

KEY = "sk-of-the-test"


class AllHeaders(ScriptedServer):
    """Keeps the headers of all requests, look-ups too, by path."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.headers: dict[str, dict[str, str]] = {}

    async def _serve(self, request: Received, wire: Wire) -> bool:
        self.headers[request.path] = request.headers
        return await super()._serve(request, wire)


def test_a_probe_marks_its_requests() -> None:
    spec = ModelSpec(base_url="http://h", model="m")
    assert request_headers(spec, None).fields == {"Authorization": "Bearer ", "Content-Type": "application/json"}
    headers = request_headers(spec, f" {KEY}\n", is_probe=True)
    assert headers.fields == {**request_headers(spec, KEY).fields, "X-Assay-Probe": "1"}
    assert headers.redact(f"no {KEY}") == "no ***"


def test_whoever_asks_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with AllHeaders() as server:
        spec = ModelSpec(base_url=server.url, model="m")

        async def ask() -> None:
            async with OpenAIModel(spec, api_key=KEY) as model:
                await model.ask(Request("t", 0, 0, 0, "generate_until", b'{"model": "m", "messages": []}', "k"))
                await model.server_info()
                await model.endpoints[0].looks_alive()
                await model.load()

        for question, path in (
            (ask, "/v1/chat/completions"),
            (lambda: probe_async(spec, seconds=20), "/v1/completions"),
        ):
            server.headers.clear()
            asyncio.run(question())
            assert {path, "/health", "/v1/models"} <= server.headers.keys()
            for seen in server.headers.values():
                assert (seen["authorization"], seen["content-type"]) == (f"Bearer {KEY}", "application/json")


@pytest.mark.parametrize("value", ["$HOME", "@etc/passwd", "Bearer $TOKEN", "$$", "@@x", "a$b", "@", "Bearer $$x", "$"])
def test_a_literal_value_is_sent_as_it_is(value: str) -> None:
    assert header_values({"X-Team": literal(value)}) == {"X-Team": value}
    assert without_values({"X-Team": literal(value)}) == {"X-Team": "***"}
