"""Tiny random models made on the spot, with a tokenizer of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.small_tokenizer import write_small_tokenizer

NEEDED = "the in-process engine needs torch and transformers (make test-hf)"


def write_small_model(folder: Path, kind: str, *, max_length: int = 128, **tokenizer: Any) -> str:
    """A random ``opt`` or ``llama`` in float32, with its tokenizer."""
    torch = pytest.importorskip("torch", reason=NEEDED)
    transformers = pytest.importorskip("transformers", reason=NEEDED)
    write_small_tokenizer(folder, **{"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer})
    torch.manual_seed(7)
    shared = {
        "vocab_size": 400,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": max_length,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.4,
    }
    if kind == "opt":
        config = transformers.OPTConfig(**shared, ffn_dim=64, word_embed_proj_dim=32)
        model = transformers.OPTForCausalLM(config)
    else:
        config = transformers.LlamaConfig(**shared, intermediate_size=64)
        model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    return str(folder)
