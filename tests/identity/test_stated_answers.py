"""Answers with what servers state of their tokens: both shapes, and what is odd in them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from assay.client.replies import ReplyError
from assay.identity.selfcheck.answers import StatedAnswer, answer_body, read_stated_answer


def read(choice: dict[str, Any], **usage: Any) -> StatedAnswer:
    return read_stated_answer(json.dumps({"choices": [choice], "usage": usage}).encode())


def entry(token: str, logprob: float | None, data: list[int] | None = None, **more: Any) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": data, **more}


def test_chat_and_completions_state_the_same() -> None:
    top = [entry("a", -0.5), entry("b", -1.5)]
    chat = read({"message": {"content": "a"}, "logprobs": {"content": [{**top[0], "top_logprobs": top}]}})
    legacy = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5, "b": -1.5}]}
    completions = read({"text": "a", "logprobs": legacy})
    assert chat.steps == completions.steps
    assert chat.steps[0].place == 0
    assert (chat.text, completions.text) == ("a", "a")


def test_a_token_that_is_listed_besides_the_likeliest_is_none_of_them() -> None:
    listed = {f"t{place}": -1.0 - place / 10 for place in range(20)} | {"drawn": -9.0}
    step = read(
        {"text": "drawn", "logprobs": {"tokens": ["drawn"], "token_logprobs": [-9.0], "top_logprobs": [listed]}}
    ).steps[0]
    assert len(step.likeliest) == 20
    assert step.place is None


def test_impossible_values_are_left_out_and_twins_are_told_apart_by_their_probability() -> None:
    top = [entry("a", -1.0), entry("a", -2.0), entry("b", -9999.0), entry("c", None)]
    step = read({"message": {"content": "a"}, "logprobs": {"content": [{**top[1], "top_logprobs": top}]}}).steps[0]
    assert [each.logprob for each in step.likeliest] == [-1.0, -2.0]
    assert step.place == 1
    assert step.top == {"a": pytest.approx(math.log(math.exp(-1) + math.exp(-2)))}
    nothing = read_stated_answer(
        b'{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [NaN], "top_logprobs": [{"a": NaN}]}}]}'
    )
    assert nothing.steps[0].listed == ()


def test_halves_of_characters_are_their_bytes() -> None:
    half = entry("\ufffd", -1.0, [226, 130], top_logprobs=[])
    step = read({"message": {"content": ""}, "logprobs": {"content": [half]}}).steps[0]
    assert (step.token, step.text) == ("e282", b"\xe2\x82")
    legacy = read({"text": "", "logprobs": {"tokens": ["\ufffd"], "token_logprobs": [-1.0], "top_logprobs": [None]}})
    assert legacy.steps[0].text is None


def test_counts_reasoning_and_cached_tokens_are_read() -> None:
    answer = read(
        {"message": {"content": "so", "reasoning_content": "hm "}, "finish_reason": "stop"},
        prompt_tokens=7,
        completion_tokens=3,
        prompt_tokens_details={"cached_tokens": 5},
    )
    assert (answer.text, answer.has_reasoning, answer.finish_reason) == ("hm so", True, "stop")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (7, 3, 5)
    assert answer.steps == ()


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"choices": []}', b'{"choices": 3}', b"\xff"])
def test_what_is_no_answer_is_said_to_be_that(body: bytes) -> None:
    with pytest.raises(ReplyError, match="the reply"):
        read_stated_answer(body)


def test_bodies_ask_for_log_probabilities_by_the_endpoints_own_names() -> None:
    chat, plain = (json.loads(answer_body(kind, "m", "hi", max_tokens=2)) for kind in ("chat", "completions"))
    assert (chat["logprobs"], chat["top_logprobs"], plain["logprobs"]) == (True, 20, 20)
    assert chat["messages"] == [{"role": "user", "content": "hi"}]
    assert plain["temperature"] == chat["temperature"] == 0
    assert "logprobs" not in json.loads(answer_body("chat", "m", "hi", with_logprobs=False))
