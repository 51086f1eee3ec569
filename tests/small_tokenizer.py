"""A tokenizer made on the spot, in the files that ``save_pretrained`` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_SENTENCES = (
    "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday.",
    "The answer is (A). The answer is (B). The answer is 12.",
    "Question: what is the name of the river?\nAnswer: the river has no name.\n\n",
)


def write_small_tokenizer(folder: Path, **config: Any) -> str:
    """A byte-level BPE tokenizer of some 400 tokens with ``<s>`` and ``</s>``; `config` goes into its configuration."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(_SENTENCES, vocab_size=400, min_frequency=1, special_tokens=["<pad>", "<s>", "</s>"])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | config))
    return str(folder)
