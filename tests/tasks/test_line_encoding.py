"""Encoding by line against encoding the whole, with every known way of splitting."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.tasks.line_encoding import LineEncoder
from tests.tasks.tokenizer_files import KNOWN, encode_whole


@pytest.mark.parametrize("name", KNOWN)
@settings(max_examples=400, deadline=None)
@given(
    text=st.text(st.sampled_from("\n\n\n\r\t  aAzé日.?!'s1\u0301/\u2028") | st.characters(codec="utf-8"), max_size=40)
)
def test_lines_apart_give_the_tokens_of_the_whole(name: str, text: str) -> None:
    assert_same(name, text)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize(
    "text",
    [
        "a\nA",
        "a\n\nA",
        "a \nA",
        "?\nA",
        "?\n\nA",
        " \nA",
        "\nA",
        "1\nA",
        "a\n A",
        "a\r\nA",
        "<s>\nA",
        "é\nA",
        "it's\nA",
        "a\nA\u0301",
    ],
)
def test_lines_apart_give_the_tokens_of_the_whole_where_it_could_go_wrong(name: str, text: str) -> None:
    assert_same(name, text)


def assert_same(name: str, text: str) -> None:
    encode = partial(encode_whole, name)
    assert LineEncoder(encode)(text) == encode(text)


def test_a_line_seen_before_is_not_encoded_again() -> None:
    encoded: list[str] = []

    def encode_line(line: str) -> list[int]:
        encoded.append(line)
        return [len(line)]

    encode = LineEncoder(encode_line)
    assert encode("Q: a\nA: b\n\nQ: c\nA: b") == encode("Q: a\nA: b\n\nQ: c\nA: b")
    assert encoded == ["Q: a\n", "A: b\n\nQ: c\n", "A: b"]
