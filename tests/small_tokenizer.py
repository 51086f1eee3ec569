"""A tokenizer made on the spot, in the files that ``save_pretrained`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

_SENTENCES = (
    "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday.",
    "The answer is (A). The answer is (B). The answer is 12.",
    "Question: what is the name of the river?\nAnswer: the river has no name.\n\n",
)


def write_small_tokenizer(
    folder: Path, sentences: Iterable[str] = _SENTENCES, vocabulary: int = 400, **config: Any
) -> str:
    """A byte-level BPE tokenizer with ``<s>`` and ``</s>``, learnt from `sentences`; `config` goes into its files."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    special = ["<pad>", "<s>", "</s>"]
    tokenizer.train_from_iterator(sentences, vocab_size=vocabulary, min_frequency=1, special_tokens=special)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | config))
    return str(folder)
