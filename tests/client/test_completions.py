"""All completions of a reply, and their tokens in every shape that servers send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.client.completions import read_completions, read_echoed
from assay.client.replies import ReplyError
from assay.types import CompletionToken, FailureCause


def reply(*choices: dict[str, Any]) -> bytes:
    return json.dumps({"choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": 2}}).encode()


LEGACY = {"tokens": [" a", " b"], "token_logprobs": [-0.5, None], "top_logprobs": None, "text_offset": [0, 2]}
CHAT = {"content": [{"id": 5, "token": " a", "bytes": [32], "logprob": -0.5}, {"token": " b"}]}


@pytest.mark.parametrize("logprobs", [LEGACY, CHAT])
def test_tokens_of_either_shape(logprobs: dict[str, Any]) -> None:
    said, (completion,) = read_completions(
        reply({"text": " a b", "finish_reason": "stop", "logprobs": logprobs}), "completions", 1
    )
    assert completion.text == said.text == " a b"
    assert completion.finish_reason == "stop"
    assert completion.tokens == (CompletionToken(" a", -0.5), CompletionToken(" b", 0))
    assert (said.prompt_tokens, said.completion_tokens) == (3, 2)


def test_no_tokens_where_the_server_tells_none() -> None:
    nothing: list[dict[str, Any]] = [{}, {"logprobs": None}, {"logprobs": {}}]
    for logprobs in nothing:
        _, (completion,) = read_completions(reply({"text": "x", **logprobs}), "completions", 1)
        assert completion.tokens == ()


def test_tokens_without_a_log_probability_each_are_no_answer() -> None:
    for change in ({"token_logprobs": [-0.5]}, {"tokens": [" b"]}):
        with pytest.raises(ReplyError, match=r"[12] tokens and [12] log-probabilities") as raised:
            read_completions(reply({"text": " a b", "logprobs": LEGACY | change}), "completions", 1)
        assert raised.value.cause is FailureCause.UNREADABLE_REPLY


def test_chat_gives_texts_and_reasoning_without_tokens() -> None:
    message = {"content": "42", "reasoning_content": "hm"}
    _, completions = read_completions(reply({"message": message, "logprobs": CHAT}), "chat", 1)
    assert [(one.text, one.reasoning, one.tokens) for one in completions] == [("42", "hm", ())]


def test_content_in_parts_is_joined_for_every_completion() -> None:
    parts = [[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": text}, " b"] for text in ("a", "c")]
    _, completions = read_completions(reply(*({"message": {"content": content}} for content in parts)), "chat", 2)
    assert [(one.text, one.reasoning) for one in completions] == [("a b", "hm"), ("c b", "hm")]


def test_an_index_may_be_missing_or_none() -> None:
    for index in ({}, {"index": None}, {"index": "0"}, {"index": [0]}):
        _, completions = read_completions(reply({"text": "a", **index}, {"text": "b", **index}), "completions", 2)
        assert [one.text for one in completions] == ["a", "b"]


def test_completions_come_in_the_order_of_their_index() -> None:
    for indices in ((1, 0), ("1", "0")):
        choices = [{"text": text, "index": index} for text, index in zip("ba", indices, strict=True)]
        _, completions = read_completions(reply(*choices), "completions", 2)
        assert [one.text for one in completions] == ["a", "b"]


def test_fewer_completions_than_asked_for_are_no_answer() -> None:
    with pytest.raises(ReplyError, match="3 completions were asked for and 1 came") as raised:
        read_completions(reply({"text": "a"}), "completions", 3)
    assert raised.value.cause is FailureCause.UNREADABLE_REPLY


def test_one_that_was_broken_off_is_no_answer() -> None:
    broken = {"text": "b", "index": 1, "finish_reason": "abort"}
    with pytest.raises(ReplyError) as raised:
        read_completions(reply({"text": "a"}, broken), "completions", 2)
    assert raised.value.cause is FailureCause.ERROR_IN_REPLY


def test_one_with_an_error_and_no_text_says_the_error() -> None:
    with pytest.raises(ReplyError, match=r"^out of memory$") as raised:
        read_completions(reply({"text": "a"}, {"index": 1, "error": {"message": "out of memory"}}), "completions", 2)
    assert raised.value.cause is FailureCause.ERROR_IN_REPLY


@pytest.mark.parametrize(
    ("echo", "said"),
    [
        ({"prompt_logprobs": []}, "no token of the prompt"),
        ({"prompt_logprobs": [None, None]}, "lacks log-probabilities"),
        ({"prompt_logprobs": [None, {}]}, "lacks log-probabilities"),
        ({"logprobs": {"tokens": ["!"], "token_logprobs": [None], "top_logprobs": [None]}}, "no token of the prompt"),
        (
            {
                "logprobs": {
                    "tokens": ["Hi", " you", " !"],
                    "token_logprobs": [None, None, -0.1],
                    "top_logprobs": [None, None, {}],
                }
            },
            "lacks log-probabilities",
        ),
    ],
)
def test_a_prompt_whose_tokens_have_no_log_probability_is_not_taken_for_certain(
    echo: dict[str, Any], said: str
) -> None:
    with pytest.raises(ReplyError, match=said) as raised:
        read_echoed(reply({"text": "Hi you", **echo}), "Hi you")
    assert raised.value.cause is FailureCause.UNREADABLE_REPLY


def test_the_token_after_an_echoed_prompt_is_left_out() -> None:
    logprobs = {
        "tokens": ["Hi", " you", " !"],
        "token_logprobs": [None, -2.0, -0.1],
        "top_logprobs": [None, {" you": -2.0}, {" !": -0.1}],
    }
    _, completion = read_echoed(reply({"text": "Hi you !", "logprobs": logprobs}), "Hi you")
    assert completion.text == "Hi you"
    assert completion.tokens == (CompletionToken("Hi", 0), CompletionToken(" you", -2.0))


@pytest.mark.parametrize(
    ("prompt", "others", "first"),
    [
        ("Hi you", [" you"], "Hi"),
        ("aaaa", ["aa"], "aa"),
        ("Hi", ["Hi"], ""),  # what begins texts was put before it
        ("Hi 北", [" ", "\ufffd", "\ufffd", "\ufffd"], "Hi"),
        ("Hi 北", ["Hi ", "\ufffd", "\ufffd", "\ufffd"], ""),
        ("北 Hi", ["\ufffd", "\ufffd", " Hi"], "北"),
        ("Hi", [], "Hi"),
    ],
)
def test_the_first_token_that_a_server_does_not_name_is_what_the_others_leave(
    prompt: str, others: list[str], first: str
) -> None:
    entries = [{str(place): {"logprob": -2.0, "decoded_token": text}} for place, text in enumerate(others)]
    _, completion = read_echoed(reply({"text": "!", "prompt_logprobs": [None, *entries]}), prompt)
    assert completion.tokens[0] == CompletionToken(first, 0)
    assert [token.text for token in completion.tokens[1:]] == others
