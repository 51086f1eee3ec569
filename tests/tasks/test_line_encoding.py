"""Encoding by line against encoding the whole, with every pattern that is said to allow it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.tasks.line_encoding import LineEncoder, encodes_by_line

tokenizers = pytest.importorskip("tokenizers")

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES = GPT2 | {"use_regex": False}
REST = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + REST
QWEN2 = LLAMA3.replace("{1,3}", "")


def split(regex: str, **changes: Any) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} | changes


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


ALLOWED = {
    "GPT-2": GPT2,
    "SmolLM": sequence({"type": "Digits", "individual_digits": True}, GPT2),
    "Llama 3": sequence(split(LLAMA3), BYTES),
    "Qwen 2": sequence(split(QWEN2), BYTES),
}

NOT_KNOWN_TO_ALLOW = {
    "none": None,
    "a blank put before the text": GPT2 | {"add_prefix_space": True},
    "no splitting": BYTES,
    "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
    "another pattern": sequence(split(r"\s+|\S+"), BYTES),
    "another behaviour": sequence(split(LLAMA3, behavior="MergedWithNext"), BYTES),
    "inverted": sequence(split(LLAMA3, invert=True), BYTES),
    "a string for a pattern": sequence(split(LLAMA3, pattern={"String": "\n"}), BYTES),
    "a sequence of nothing": sequence(),
    "a list": [GPT2],
}


def tokenizer_file(pre_tokenizer: Any, **changes: Any) -> str:
    """A byte-level BPE that joins whatever its pattern lets it join: pairs of blanks, breaks, letters and marks."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [[a, b] for a in "ĊĠ?.aA1" for b in "ĊĠ?.aA1"]
    merges += [["".join(pair), b] for pair in merges[:49] for b in "ĊĠaA"]
    vocabulary = list(dict.fromkeys([*alphabet, *("".join(merge) for merge in merges)]))
    content = {
        "version": "1.0",
        "added_tokens": [{"id": len(vocabulary), "content": "<s>", **dict.fromkeys(FLAGS, False), "special": True}],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {token: place for place, token in enumerate(vocabulary)}, "merges": merges},
    }
    return json.dumps(content | changes)


FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


@pytest.mark.parametrize("name", ALLOWED)
@settings(max_examples=400, deadline=None)
@given(
    text=st.text(st.sampled_from("\n\n\n\r\t  aAzé日.?!'s1\u0301/\u2028") | st.characters(codec="utf-8"), max_size=40)
)
def test_lines_apart_give_the_tokens_of_the_whole(name: str, text: str) -> None:
    assert_same(name, text)


@pytest.mark.parametrize("name", ALLOWED)
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
    tokenizer = _loaded(name)
    whole = tokenizer.encode(text, add_special_tokens=False).ids
    assert LineEncoder(lambda line: tokenizer.encode(line, add_special_tokens=False).ids)(text) == whole


_cache: dict[str, Any] = {}


def _loaded(name: str) -> Any:
    if name not in _cache:
        _cache[name] = tokenizers.Tokenizer.from_str(tokenizer_file(ALLOWED[name]))
    return _cache[name]


@pytest.mark.parametrize("name", ALLOWED)
def test_known_patterns_allow_it(name: str) -> None:
    assert encodes_by_line(tokenizer_file(ALLOWED[name]).encode())
    assert encodes_by_line(tokenizer_file(ALLOWED[name], normalizer={"type": "NFC"}).encode())


@pytest.mark.parametrize("name", NOT_KNOWN_TO_ALLOW)
def test_others_do_not(name: str) -> None:
    assert not encodes_by_line(tokenizer_file(NOT_KNOWN_TO_ALLOW[name]).encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"model": {"type": "BPE", "dropout": 0.1}},
        {"model": {"type": "Unigram"}},
        {"added_tokens": [{"content": "a\nA"}]},
        {"added_tokens": [{"content": "<s>", "lstrip": True}]},
        {"added_tokens": [{"content": "<s>", "rstrip": True}]},
        {"added_tokens": [{"content": "<s>", "single_word": True}]},
    ],
)
def test_what_looks_beyond_the_line_forbids_it(changes: dict[str, Any]) -> None:
    assert not encodes_by_line(tokenizer_file(GPT2, **changes).encode())


def test_what_is_no_tokenizer_forbids_it() -> None:
    assert not encodes_by_line(b"[]")


def test_a_line_seen_before_is_not_encoded_again() -> None:
    encoded: list[str] = []

    def encode_line(line: str) -> list[int]:
        encoded.append(line)
        return [len(line)]

    encode = LineEncoder(encode_line)
    assert encode("Q: a\nA: b\n\nQ: c\nA: b") == encode("Q: a\nA: b\n\nQ: c\nA: b")
    assert encoded == ["Q: a\n", "A: b\n\nQ: c\n", "A: b"]
