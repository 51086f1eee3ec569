from __future__ import annotations

from typing import Any

import pytest

from assay.tasks.splitting import known_splitting
from tests.tasks.tokenizer_files import GPT2, KNOWN, UNKNOWN, tokenizer_file


@pytest.mark.parametrize("name", KNOWN)
def test_known_patterns_are_recognised(name: str) -> None:
    assert known_splitting(tokenizer_file(KNOWN[name]).encode())
    assert known_splitting(tokenizer_file(KNOWN[name], normalizer={"type": "NFC"}).encode())


@pytest.mark.parametrize("name", UNKNOWN)
def test_others_are_not(name: str) -> None:
    assert not known_splitting(tokenizer_file(UNKNOWN[name]).encode())


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
def test_what_looks_beyond_the_line_is_not_known(changes: dict[str, Any]) -> None:
    assert not known_splitting(tokenizer_file(GPT2, **changes).encode())


def test_what_is_no_tokenizer_is_not_known() -> None:
    assert not known_splitting(b"[]")
