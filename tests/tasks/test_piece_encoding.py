"""Encoding by piece against encoding the whole, with every known way of splitting."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.tasks.piece_encoding import PieceEncoder
from assay.tasks.splitting import Splitting, known_splitting
from tests.tasks.tokenizer_files import KNOWN, encode_whole, tokenizer_file


@pytest.mark.parametrize("name", KNOWN)
@settings(max_examples=400, deadline=None)
@given(
    text=st.text(st.sampled_from("\n\n\r\t   aAsS.?!''re1234_/") | st.characters(max_codepoint=127), max_size=40)
    | st.text(st.sampled_from("\n  aAé日.?!\u017f1") | st.characters(codec="utf-8"), max_size=20)
)
def test_pieces_apart_give_the_tokens_of_the_whole(name: str, text: str) -> None:
    assert_same(name, text)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a  1",
        "1  a",
        "it's I'LL ''re '",
        "\x1c\x1d \x1e\x1f\x0b\x0c\x85",
        "a <s> 1<s>",
        "<s",
        "12345 67",
        "a_b __",
        "?!\r\n\n a",
        " \t \n \n  ",
    ],
)
def test_pieces_apart_give_the_tokens_of_the_whole_where_it_could_go_wrong(name: str, text: str) -> None:
    assert_same(name, text)


def assert_same(name: str, text: str) -> None:
    splitting = known_splitting(tokenizer_file(KNOWN[name]).encode())
    assert splitting is not None
    encode = partial(encode_whole, name)
    assert PieceEncoder(encode, splitting)(text) == encode(text)


def test_a_piece_seen_before_is_not_encoded_again() -> None:
    encoded: list[str] = []

    def encode_piece(piece: str) -> list[int]:
        encoded.append(piece)
        return [len(piece)]

    splitting = known_splitting(tokenizer_file(KNOWN["GPT-2"]).encode())
    assert splitting is not None
    encode = PieceEncoder(encode_piece, splitting)
    assert encode("one two one") == [3, 4, 4]
    assert encode("one two two") == [3, 4, 4]
    assert encoded == ["one", " two", " one"]


def test_without_added_tokens_all_of_ascii_goes_by_piece() -> None:
    splitting = known_splitting(tokenizer_file(KNOWN["GPT-2"]).encode())
    assert splitting is not None
    encode = PieceEncoder(lambda text: [len(text)], Splitting(splitting.ascii_patterns, added_tokens=()))
    assert encode("one two") == [3, 4]
    assert encode("one zwölf") == [9]
