"""Divergences of lists of likeliest tokens never exceed the true ones; odd lists are read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.client.replies import ReplyError
from assay.identity.top_logprobs import divergence, read_first_token

logits = st.floats(-20, 20)
pairs = st.integers(2, 60).flatmap(lambda n: st.tuples(*[st.lists(logits, min_size=n, max_size=n)] * 2))


def probabilities(values: list[float]) -> list[float]:
    weights = [math.exp(value - max(values)) for value in values]
    return [weight / sum(weights) for weight in weights]


def likeliest(p: list[float], count: int, digits: int | None = None) -> dict[str, float]:
    order = sorted(range(len(p)), key=lambda token: -p[token])[:count]
    logs = {str(token): math.log(p[token]) for token in order}
    return logs if digits is None else {token: round(value, digits) for token, value in logs.items()}


@given(pairs, st.integers(1, 20))
def test_it_is_a_lower_bound_of_the_true_divergence(values: tuple[list[float], list[float]], count: int) -> None:
    p, q = map(probabilities, values)
    true = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert 0 <= divergence(likeliest(p, count), likeliest(q, count)) <= true + 2e-4
    assert divergence(likeliest(p, count), likeliest(p, count)) < 1e-9


@given(pairs)
def test_it_is_the_true_divergence_where_all_tokens_are_listed(values: tuple[list[float], list[float]]) -> None:
    p, q = map(probabilities, values)
    true = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert divergence(likeliest(p, 60), likeliest(q, 60)) == pytest.approx(true, abs=1e-6)


@given(pairs)
def test_rounding_to_four_decimals_changes_next_to_nothing(values: tuple[list[float], list[float]]) -> None:
    p, _ = map(probabilities, values)
    assert divergence(likeliest(p, 20), likeliest(p, 20, digits=4)) < 1e-4


def test_lists_without_a_common_token_are_far_apart() -> None:
    here, there = {"a": math.log(0.9)}, {"b": math.log(0.9)}
    assert divergence(here, there) > 1.5


def reply(logprobs: Any, **usage: int) -> bytes:
    return json.dumps({"choices": [{"logprobs": logprobs}], "usage": usage}).encode()


def entry(token: str, logprob: float | None, data: list[int] | None = None) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": data}


def test_chats_and_completions_lists_are_read() -> None:
    top = [entry("a", -0.5), entry("b", -1.5)]
    of_chat = read_first_token(reply({"content": [{**top[0], "top_logprobs": top}]}, prompt_tokens=7))
    assert of_chat.top == {"a": -0.5, "b": -1.5}
    assert of_chat.prompt_tokens == 7
    assert read_first_token(reply({"top_logprobs": [{"a": -0.5, "b": -1.5}]})).top == of_chat.top


def test_what_stands_for_impossible_is_left_out_and_twins_are_added() -> None:
    top = [entry("a", math.log(0.25)), entry("a", math.log(0.25)), entry("b", -9999.0), entry("c", None)]
    assert read_first_token(reply({"content": [{**top[0], "top_logprobs": top}]})).top == {
        "a": pytest.approx(math.log(0.5))
    }


def test_halves_of_characters_are_told_apart() -> None:
    top = [entry("\ufffd", -1.0, [226]), entry("\ufffd", -2.0, [227])]
    assert read_first_token(reply({"content": [{**top[0], "top_logprobs": top}]})).top == {"e2": -1.0, "e3": -2.0}


@pytest.mark.parametrize("values", [[5.0], [-0.01, -0.01], [float("1e300"), -1.0]])
def test_probabilities_above_one_are_refused(values: list[float]) -> None:
    top = [entry(f"t{place}", value) for place, value in enumerate(values)]
    with pytest.raises(ReplyError, match="exceed 1"):
        read_first_token(reply({"content": [{**top[0], "top_logprobs": top}]}))


@pytest.mark.parametrize(
    "body", [b"{}", b"[", reply(None), reply({"content": []}), reply({"top_logprobs": [None]}), b'{"choices": 3}']
)
def test_replies_without_them_are_said_to_be_that(body: bytes) -> None:
    with pytest.raises(ReplyError, match="log-probabilities"):
        read_first_token(body)
