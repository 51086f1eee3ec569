from __future__ import annotations

import json
from typing import Any

import pytest

from assay.client.logprobs import EchoedPrompt, Loglikelihood, read_echo, unanswerable
from assay.client.replies import ReplyError
from assay.types import TextTail, TokenSpan


def legacy(**changes: Any) -> dict[str, Any]:
    """An echo of "Is it so? No" with " ." generated."""
    lists = {
        "tokens": ["Is", " it", " so", "?", " N", "o", "."],
        "token_logprobs": [None, -1.5, -0.25, -2.0, -0.125, -0.5, -0.1],
        "top_logprobs": [None, {" it": -1.5}, {" so": -0.25}, {",": -0.5, "?": -2.0}, {" N": -0.125}, {"o": -0.5}, {}],
    }
    return lists | changes


def echo(logprobs: Any, **choice: Any) -> EchoedPrompt:
    return read_echo(json.dumps({"choices": [{"index": 0, "text": "", "logprobs": logprobs, **choice}]}).encode())


def test_the_part_asked_about_is_summed_and_the_generated_token_left_out() -> None:
    assert echo(legacy()).loglikelihood(TokenSpan(4, 6)) == Loglikelihood(-0.625, True)


def test_one_token_that_was_not_the_likeliest_makes_the_part_not_greedy() -> None:
    assert echo(legacy()).loglikelihood(TokenSpan(3, 6)) == Loglikelihood(-2.625, False)


def test_whole_numbers_stay_whole_because_lm_eval_writes_them_so() -> None:
    values = [None, 0, 0, 0, 0, 0, 0]
    logprob, _ = echo(legacy(token_logprobs=values, top_logprobs=[None, *[{"x": 0}] * 6])).loglikelihood(
        TokenSpan(4, 6)
    )
    assert repr(logprob) == "0"


def test_nothing_to_score_is_certain() -> None:
    assert echo(legacy()).loglikelihood(TokenSpan(6, 6)) == Loglikelihood(0, True)
    assert echo(legacy()).loglikelihood(TextTail("")) == Loglikelihood(0, True)


@pytest.mark.parametrize(
    ("tail", "start"),
    [(" No", 4), ("o", 5), ("No", 4), ("? No", 3), ("Is it so? No", 0)],
)
def test_text_is_found_from_the_end_and_a_token_across_the_seam_belongs_to_it(tail: str, start: int) -> None:
    assert echo(legacy()).start_of(TextTail(tail)) == start


def test_text_that_is_not_there_is_no_answer() -> None:
    with pytest.raises(ReplyError, match=r"'\? No', not ' Yes'.*--tokenizer"):
        echo(legacy()).start_of(TextTail(" Yes"))


def test_another_number_of_tokens_is_no_answer() -> None:
    with pytest.raises(ReplyError, match="6 prompt tokens where 7"):
        echo(legacy()).loglikelihood(TokenSpan(4, 7))


def test_a_text_without_context_needs_a_token_before_it() -> None:
    with pytest.raises(ReplyError, match="first token"):
        echo(legacy()).loglikelihood(TextTail("Is it so? No"))


def test_a_gap_is_no_answer() -> None:
    values = [None, -1.5, -0.25, -2.0, -0.125, None, -0.1]
    with pytest.raises(ReplyError, match="some token"):
        echo(legacy(token_logprobs=values)).loglikelihood(TokenSpan(4, 6))


def test_the_choice_with_the_smallest_index_counts() -> None:
    choices = [
        {"index": 1, "text": "", "logprobs": legacy(token_logprobs=[None, *[-9.0] * 6])},
        {"index": 0, "text": "", "logprobs": legacy()},
    ]
    prompt = read_echo(json.dumps({"choices": choices}).encode())
    assert prompt.loglikelihood(TokenSpan(4, 6)).logprob == -0.625


@pytest.mark.parametrize(
    ("logprobs", "reason"),
    [
        (None, "no log-probabilities"),
        ({"content": [{"token": ".", "logprob": -0.1}]}, "generated text only.*chat"),
        ({}, "generated text only"),
        (legacy(top_logprobs=None), "missing, empty or of unequal length"),
        (legacy(token_logprobs=[None, -1.5]), "missing, empty or of unequal length"),
        (legacy(tokens=[], token_logprobs=[], top_logprobs=[]), "missing, empty or of unequal length"),
        (legacy(token_logprobs=[None, "high"]), "not of the protocol"),
        ("yes", "not of the protocol"),
    ],
)
def test_other_shapes_are_told_apart(logprobs: Any, reason: str) -> None:
    with pytest.raises(ReplyError, match=reason):
        echo(logprobs)


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [(["Is"], "of unequal length"), ([], "missing"), (None, "not of the protocol"), ([1] * 7, "not of the protocol")],
)
def test_the_tokens_texts_are_looked_at_only_where_they_are_needed(tokens: Any, reason: str) -> None:
    prompt = echo(legacy(tokens=tokens))
    assert prompt.loglikelihood(TokenSpan(4, 6)) == Loglikelihood(-0.625, True)
    with pytest.raises(ReplyError, match=reason):
        prompt.loglikelihood(TextTail(" No"))


@pytest.mark.parametrize("top", [None, {}, {"o": None}, [1]])
def test_a_part_without_its_likeliest_tokens_is_no_answer(top: Any) -> None:
    tops = [*legacy()["top_logprobs"][:5], top, {}]
    with pytest.raises(ReplyError, match="no likeliest token at place 5"):
        echo(legacy(top_logprobs=tops)).loglikelihood(TokenSpan(4, 6))


def test_numbers_that_are_none_are_no_answer() -> None:
    logprobs = legacy(token_logprobs=[None, float("nan"), *[-1.0] * 5])
    body = json.dumps({"choices": [{"text": "", "logprobs": logprobs}]}).encode()
    with pytest.raises(ReplyError, match="not of the protocol"):
        read_echo(body)


def test_a_reply_without_choices_is_no_answer() -> None:
    with pytest.raises(ReplyError):
        read_echo(b'{"choices": []}')


def prompt_logprobs() -> list[Any]:
    return [
        None,
        {"7": {"logprob": -2.0, "rank": 3, "decoded_token": " it"}, "8": {"logprob": -0.5, "decoded_token": " he"}},
        {"9": {"logprob": -0.25, "rank": 1, "decoded_token": " so"}},
    ]


def test_the_first_candidate_of_a_place_is_the_prompts_own() -> None:
    prompt = echo(None, prompt_logprobs=prompt_logprobs())
    assert prompt.logprobs == [None, -2.0, -0.25]
    assert prompt.loglikelihood(TokenSpan(1, 3)) == Loglikelihood(-2.25, False)
    assert prompt.loglikelihood(TextTail(" so")) == Loglikelihood(-0.25, True)
    assert prompt.likeliest(1).text == " he"


def test_the_protocols_own_lists_go_before_prompt_logprobs() -> None:
    prompt = echo(legacy(), prompt_logprobs=prompt_logprobs())
    assert prompt.generated == "."
    assert prompt.loglikelihood(TokenSpan(4, 6)) == Loglikelihood(-0.625, True)


@pytest.mark.parametrize("entry", [7, {"7": -2.0}, {"7": {"rank": 1}}])
def test_prompt_logprobs_of_another_shape_are_no_answer(entry: Any) -> None:
    with pytest.raises(ReplyError, match="not of the protocol"):
        echo(None, prompt_logprobs=[None, entry])


def test_a_request_whose_context_is_cut_away_need_not_be_sent() -> None:
    failure = unanswerable(TokenSpan(0, 2047))
    assert failure is not None
    assert "2047 prompt tokens" in failure.message
    assert unanswerable(TokenSpan(-3, 5)) is not None


@pytest.mark.parametrize("scored", [TokenSpan(1, 5), TextTail("a")])
def test_other_requests_are_sent(scored: TokenSpan | TextTail) -> None:
    assert unanswerable(scored) is None
