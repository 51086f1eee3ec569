"""A small random OPT."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

WORDS = ("question", "answer", "the", "river", "is", "red", "and", "blue", "or", "odd", "house", "one", "two", "three")
WINDOW = 64


def write_small_opt(place: Path, window: int = WINDOW, ffn_dim: int = 64) -> Path:
    """An OPT with random weights, so large that it does not repeat one token, and a tokenizer of bytes and words."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra hf)")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import TemplateProcessing

    rng = random.Random(3)
    pairs = ByteLevelBPETokenizer()
    lines = [" ".join(rng.choices(WORDS, k=9)) for _ in range(200)]
    pairs.train_from_iterator(lines, vocab_size=320, special_tokens=["<s>", "<pad>", "</s>"], show_progress=False)
    pairs.post_processor = TemplateProcessing(single="</s> $A", special_tokens=[("</s>", 2)])
    pairs.save(str(place / "tokenizer.json"))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(place / "tokenizer.json"), bos_token="</s>", eos_token="</s>", pad_token="<pad>"
    )
    tokenizer.model_max_length = window
    tokenizer.save_pretrained(place)
    torch.manual_seed(3)
    config = transformers.OPTConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        word_embed_proj_dim=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=ffn_dim,
        max_position_embeddings=window,
        init_std=0.4,
        bos_token_id=2,
        pad_token_id=1,
        eos_token_id=2,
    )
    transformers.OPTForCausalLM(config).save_pretrained(place)
    return place
