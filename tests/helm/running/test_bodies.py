"""HELM's requests as bodies: what HELM's clients for vLLM send."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from assay.errors import UnsupportedTaskError
from assay.helm import Request
from assay.helm.running.bodies import body_of, check_supported
from assay.types import EndpointKind, LogprobSource

ASKED = Request(
    model="m/m",
    prompt="Q: é?\nA:",
    temperature=0.7,
    num_completions=3,
    top_k_per_token=5,
    max_tokens=40,
    stop_sequences=["\n"],
    top_p=0.9,
    presence_penalty=0.5,
    frequency_penalty=0.25,
)


def body(request: Request, endpoint: EndpointKind) -> dict[str, Any]:
    check_supported(request, endpoint)
    sent: dict[str, Any] = json.loads(body_of(request, "served", endpoint, None))
    return sent


def test_completions_get_everything_that_the_request_says() -> None:
    assert body(ASKED, "completions") == {
        "model": "served",
        "prompt": "Q: é?\nA:",
        "temperature": 0.7,
        "n": 3,
        "max_tokens": 40,
        "best_of": 5,
        "logprobs": 5,
        "stop": ["\n"],
        "top_p": 0.9,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "echo": False,
    }


def test_greedy_decoding_has_no_best_of_several() -> None:
    sent = body(msgspec.structs.replace(ASKED, temperature=0.0, num_completions=1), "completions")
    assert "best_of" not in sent
    assert sent["logprobs"] == 5


def test_chat_gets_the_prompt_in_one_turn() -> None:
    sent = body(ASKED, "chat")
    assert sent["messages"] == [{"role": "user", "content": "Q: é?\nA:"}]
    assert (sent["n"], sent["stop"], sent["max_tokens"], sent["presence_penalty"]) == (3, ["\n"], 40, 0.5)
    assert "prompt" not in sent
    assert "logprobs" not in sent


def test_no_stop_sequences_are_no_empty_list() -> None:
    assert "stop" not in body(Request(prompt="x"), "chat")
    assert "stop" not in body(Request(prompt="x"), "completions")


def test_conversations_stay_as_they_are() -> None:
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert body(Request(messages=turns), "chat")["messages"] == turns


def test_a_schema_for_the_answer_goes_along() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}}
    sent = body(Request(prompt="x", response_format={"json_schema": schema}), "chat")
    inner = sent["response_format"]["json_schema"]["schema"]
    assert inner == {**schema, "additionalProperties": False, "required": ["a", "b"]}


@pytest.mark.parametrize("source", [LogprobSource.ECHO, LogprobSource.PROMPT_LOGPROBS])
def test_prompts_are_scored_in_the_servers_way(source: LogprobSource) -> None:
    sent = json.loads(body_of(Request(prompt="x", echo_prompt=True, max_tokens=0), "served", "completions", source))
    way = {"echo": True, "logprobs": 1} if source is LogprobSource.ECHO else {"prompt_logprobs": 1}
    assert sent == {"model": "served", "prompt": "x", "temperature": 0, "max_tokens": 1, **way}


@pytest.mark.parametrize(
    ("request_", "endpoint", "reason"),
    [
        (Request(prompt="x", echo_prompt=True, max_tokens=0), "chat", "--completions"),
        (Request(messages=[{"role": "user", "content": "u"}]), "completions", "--chat"),
        (Request(prompt="x", embedding=True), "completions", "embeddings"),
        (Request(multimodal_prompt={"media_objects": []}), "chat", "images"),
        (Request(prompt="x", echo_prompt=True, max_tokens=3), "completions", "echoed"),
        (Request(prompt="x", echo_prompt=True, max_tokens=0, num_completions=2), "completions", "several"),
        (Request(prompt="x", max_tokens=-1), "completions", "max_tokens=-1"),
        (Request(prompt="x", num_completions=0), "chat", "num_completions=0"),
        (Request(prompt="x", temperature=float("nan")), "completions", "temperature=nan"),
    ],
)
def test_what_no_answer_could_be_right_for_is_refused(request_: Request, endpoint: EndpointKind, reason: str) -> None:
    with pytest.raises(UnsupportedTaskError, match=reason):
        check_supported(request_, endpoint)
