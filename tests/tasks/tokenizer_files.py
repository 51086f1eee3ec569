"""Tokenizers with every way of splitting that is known, and with some that are not."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

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


KNOWN = {
    "GPT-2": GPT2,
    "SmolLM": sequence({"type": "Digits", "individual_digits": True}, GPT2),
    "Llama 3": sequence(split(LLAMA3), BYTES),
    "Qwen 2": sequence(split(QWEN2), BYTES),
}

UNKNOWN = {
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


@functools.cache
def known_tokenizer(name: str) -> Any:
    """The tokenizer of that name in `KNOWN`."""
    return tokenizers.Tokenizer.from_str(tokenizer_file(KNOWN[name]))


def encode_whole(name: str, text: str) -> list[int]:
    """What that tokenizer makes of a text."""
    ids: list[int] = known_tokenizer(name).encode(text, add_special_tokens=False).ids
    return ids
