"""Servers that want requests of another shape: a score from each with at most one option, and the same score."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.errors import UnjudgeableError
from assay.evaluation import Evaluation, evaluate
from assay.types import ModelSpec, Specification, TaskOptions
from tests.servers.scripted import ScriptedServer, reply_with
from tests.servers.wire import Received, Wire

TASKS = Path(__file__).parents[1] / "evaluation_tasks"
KEY = "exact_match,get-answer"


def answer(body: dict[str, Any]) -> str:
    question = body["messages"][-1]["content"]
    digits = [int(word) for word in question.split() if word.isdigit()]
    return f"The answer is {sum(digits)}" if sum(digits) % 3 else "I cannot say"


def run(
    server: ScriptedServer,
    output_dir: Path,
    *,
    probe: bool = True,
    model: str = "scripted",
    base: str = "",
    **fields: Any,
) -> Evaluation:
    return evaluate(
        Specification(
            tasks=("counting",),
            model=ModelSpec(base_url=server.url + base, model=model, concurrency=4, **fields),
            options=TaskOptions(include_path=str(TASKS)),
            output_dir=str(output_dir),
            probe=probe,
        )
    )


def score(evaluation: Evaluation) -> float:
    value: float = evaluation.results["results"]["counting"][KEY]
    return value


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> float:
    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        return score(run(server, tmp_path_factory.mktemp("usual")))


def openai_reasoning(request: Received) -> tuple[int, str] | None:
    """As OpenAI's reasoning models refuse, in their words' sense."""
    body = request.body
    if "max_tokens" in body:
        return 400, "Unsupported parameter: 'max_tokens' is not supported here. Use 'max_completion_tokens' instead."
    if "stop" in body:
        return 400, "Unsupported parameter: 'stop' is not supported with this model."
    if body.get("temperature", 1) != 1:
        return 400, "Unsupported value: 'temperature' does not support 0 here. Only the default (1) value is supported."
    return None


def mistral(request: Received) -> tuple[int, str] | None:
    return (422, "Extra inputs are not permitted: body.seed") if "seed" in request.body else None


def azure(request: Received) -> tuple[int, str] | None:
    if request.headers.get("api-key") != "azure-secret-key":
        return 401, "Access denied due to invalid subscription key or wrong API endpoint."
    if "authorization" in request.headers:
        return 401, "Access denied: two ways to authenticate."
    if "api-version=2025-03-01" not in request.path:
        return 404, "Resource not found"
    return (
        (400, "'max_tokens' is not supported, use 'max_completion_tokens'.") if "max_tokens" in request.body else None
    )


def gateway(request: Received) -> tuple[int, str] | None:
    return None if request.headers["host"] == "llm.internal.example" else (404, "no route for this host")


DIALECTS: dict[str, tuple[Callable[[Received], tuple[int, str] | None], dict[str, Any]]] = {
    "OpenAI's reasoning models, found out": (openai_reasoning, {}),
    "OpenAI's reasoning models, named": (openai_reasoning, {"dialect": "openai", "model": "o3-mini"}),
    "Mistral, found out": (mistral, {}),
    "Mistral, named": (mistral, {"dialect": "mistral"}),
    "no seed, dropped": (mistral, {"drop_fields": ("seed",)}),
    "a gateway by its Host": (gateway, {"headers": {"Host": "llm.internal.example"}}),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_server_with_ways_of_its_own_gives_the_usual_score(name: str, usual: float, tmp_path: Path) -> None:
    refuse, fields = DIALECTS[name]
    with ScriptedServer(answer=answer, models=[fields.get("model", "scripted")], refuse=refuse) as server:
        evaluation = run(server, tmp_path, **fields)
    assert score(evaluation) == usual
    assert evaluation.failures == ()


def gemini(request: Received) -> tuple[int, str] | None:
    """As Google's address for OpenAI's protocol refuses a field that it does not know."""
    words = 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'
    return (400, words) if "seed" in request.body else None


@pytest.mark.parametrize("base", ["/v1beta/openai", "/v1beta/openai/", "/v1beta/openai/chat/completions"])
def test_an_address_under_another_path(base: str, usual: float, tmp_path: Path) -> None:
    under = "/v1beta/openai"
    with ScriptedServer(answer=answer, models=["scripted"], refuse=gemini, under=under) as server:
        evaluation = run(server, tmp_path, base=base)
    assert score(evaluation) == usual
    assert evaluation.failures == ()


def in_parts(body: dict[str, Any]) -> Any:
    """As Mistral's reasoning models answer."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "The answer is 1, or is it?"}]}
    reply = reply_with(answer(body), body)
    message = reply["choices"][0]["message"]
    message["content"] = [thinking, {"type": "text", "text": message["content"]}]
    return reply


@pytest.mark.parametrize("stream", [False, True])
def test_content_in_parts(stream: bool, usual: float, tmp_path: Path) -> None:
    with ScriptedServer(answer=in_parts if not stream else answer, models=["scripted"], refuse=mistral) as server:
        evaluation = run(server, tmp_path, stream=stream)
    assert score(evaluation) == usual
    if not stream:
        assert evaluation.results["assay"]["totals"]["reasoning"]["answers"] == len(server.answered)


class OnlyStreams(ScriptedServer):
    """A server that streams whatever is asked."""

    async def _serve(self, request: Received, wire: Wire) -> bool:
        request.body["stream"] = True
        return await super()._serve(request, wire)


def test_a_server_that_only_streams(usual: float, tmp_path: Path) -> None:
    with OnlyStreams(answer=answer, models=["scripted"]) as server:
        evaluation = run(server, tmp_path)
    assert score(evaluation) == usual
    assert evaluation.failures == ()


class Limited(ScriptedServer):
    """A server that answers so many requests in a window of time, and refuses the rest as providers do."""

    def __init__(self, allowed: int, seconds: float, retry_after: float, **settings: Any) -> None:
        super().__init__(answer=answer, models=["scripted"], **settings)
        self.allowed, self.seconds, self.retry_after = allowed, seconds, retry_after
        self.taken: list[float] = []
        self.refused = 0

    async def _serve(self, request: Received, wire: Wire) -> bool:
        if not request.path.endswith("/chat/completions"):
            return await super()._serve(request, wire)
        now = time.monotonic()
        self.taken = [moment for moment in self.taken if now - moment < self.seconds]
        if len(self.taken) < self.allowed:
            self.taken.append(now)
            return await super()._serve(request, wire)
        self.refused += 1
        headers = {"Retry-After": f"{self.retry_after:g}", "x-ratelimit-remaining-requests": "0"}
        return await wire.error(429, "Rate limit reached for requests", "rate_limit_exceeded", **headers)


@pytest.mark.slow
def test_a_limit_for_each_minute_costs_no_answer(usual: float, tmp_path: Path) -> None:
    with Limited(allowed=12, seconds=0.3, retry_after=0.1) as server:
        evaluation = run(server, tmp_path)
        assert server.refused > 0
    assert score(evaluation) == usual
    assert evaluation.failures == ()


def test_a_used_up_day_is_said_at_once(tmp_path: Path) -> None:
    said = r"asks to wait 11 h 6 min .*; the answers so far are kept"
    with (
        Limited(allowed=20, seconds=60_000, retry_after=40_000) as server,
        pytest.raises(UnjudgeableError, match=said),
    ):
        run(server, tmp_path, give_up_after=900.0)


def test_azure(usual: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-secret-key")
    under = "/openai/deployments/scripted"
    with ScriptedServer(answer=answer, models=["scripted"], refuse=azure, under=under) as server:
        evaluation = evaluate(
            Specification(
                tasks=("counting",),
                model=ModelSpec(
                    base_url=f"{server.url}{under}/chat/completions?api-version=2025-03-01",
                    model="scripted",
                    dialect="azure",
                    api_key_env="AZURE_OPENAI_API_KEY",
                ),
                options=TaskOptions(include_path=str(TASKS)),
                output_dir=str(tmp_path),
                probe=True,
            )
        )
    assert score(evaluation) == usual
    assert "azure-secret-key" not in "".join(file.read_text() for file in tmp_path.rglob("*.json*"))


def test_what_was_found_out_is_recorded_and_resumed_alike(tmp_path: Path) -> None:
    with ScriptedServer(answer=answer, models=["scripted"], refuse=openai_reasoning) as server:
        evaluation = run(server, tmp_path)
        sent = server.answered[-1]
    recorded = evaluation.results["assay"]["provenance"]["specification"]["model"]
    assert recorded["rename_fields"] == {"max_tokens": "max_completion_tokens"}
    assert list(recorded["drop_fields"]) == ["stop"]
    assert recorded["extra_body"] == {"temperature": 1}
    assert {"max_tokens", "stop"}.isdisjoint(sent)


def test_nothing_is_changed_where_a_value_alone_is_refused(tmp_path: Path) -> None:
    def small(request: Received) -> tuple[int, str] | None:
        return (400, "max_tokens must be at least 20000") if "max_tokens" in request.body else None

    with ScriptedServer(answer=answer, models=["scripted"], refuse=small) as server, pytest.raises(UnjudgeableError):
        run(server, tmp_path)
    assert all("max_completion_tokens" not in request.body for request in server.requests + server.probes)


def test_nothing_is_found_out_where_the_dialect_is_none(tmp_path: Path) -> None:
    with (
        ScriptedServer(answer=answer, models=["scripted"], refuse=mistral) as server,
        pytest.raises(UnjudgeableError, match="seed"),
    ):
        run(server, tmp_path, dialect="none")


def test_extra_fields_are_in_every_request_and_part_of_its_identity(tmp_path: Path) -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": False}}
    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        run(server, tmp_path, extra_body=thinking, probe=False)
        assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in server.answered)
        asked = len(server.answered)
        run(server, tmp_path, probe=False)
        assert len(server.answered) == 2 * asked


def test_streamed_requests_have_the_shape_too(tmp_path: Path) -> None:
    with ScriptedServer(answer=answer, models=["scripted"], refuse=mistral) as server:
        evaluation = run(server, tmp_path, stream=True, drop_fields=("seed",))
    assert evaluation.failures == ()
    assert all(body["stream"] is True for body in server.answered)


def test_headers_from_variables_and_files_are_sent_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_TOKEN", "tok-1234567890abcdef")
    (tmp_path / "secret").write_text("file-secret-0123456789\n")
    headers = {"X-Token": "$TEAM_TOKEN", "X-File": f"@{tmp_path / 'secret'}", "X-Written": "written-out-secret-123"}

    def chatty(body: dict[str, Any]) -> Any:
        return {**reply_with(answer(body), body), "model": "scripted, asked with tok-1234567890abcdef"}

    out = tmp_path / "out"
    with ScriptedServer(answer=chatty, models=["scripted"]) as server:
        evaluation = run(server, out, headers=headers)
    for request in [*server.requests, *server.probes]:
        assert request.headers["x-token"] == "tok-1234567890abcdef"
        assert request.headers["x-file"] == "file-secret-0123456789"
    written = "".join(file.read_text(errors="replace") for file in out.rglob("*") if file.is_file())
    for secret in ("tok-1234567890abcdef", "file-secret-0123456789", "written-out-secret-123"):
        assert secret not in written
    recorded = evaluation.results["assay"]["provenance"]["specification"]["model"]["headers"]
    assert recorded == {"X-Token": "$TEAM_TOKEN", "X-File": headers["X-File"], "X-Written": "***"}


def test_the_shape_of_a_specification_survives_json() -> None:
    model = ModelSpec(base_url="http://localhost:1", model="m", extra_body={"a": [1]}, rename_fields={"x": "y"})
    assert msgspec.json.decode(json.dumps(msgspec.to_builtins(model)), type=ModelSpec) == model
