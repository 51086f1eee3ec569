"""An engine of thirty lines: it repeats its prompt's last token, and finds small token ids likely."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.inprocess.engine import Generated, Generation, GenerationPrompt, Scored, ScoredPrompt
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from tests.small_tokenizer import write_small_tokenizer


class OwnEngine:
    """Runs out of memory with batches of more than `fits`."""

    max_length = 600

    def __init__(self, folder: Path, fits: int = 10_000) -> None:
        self.tokenizer = HuggingFaceTokenizer(write_small_tokenizer(folder / "tokenizer"))
        self.identity = {"weights": "none"}
        self.fits = fits
        self.batches: list[Sequence[GenerationPrompt | ScoredPrompt]] = []

    def _take(self, batch: Sequence[GenerationPrompt | ScoredPrompt]) -> None:
        if len(batch) > self.fits:
            raise MemoryError(f"no room for {len(batch)}")
        self.batches.append(batch)

    def generate(self, prompts: Sequence[GenerationPrompt], how: Generation) -> list[Generated]:
        self._take(prompts)
        return [
            Generated(self.tokenizer.decode(prompt.ids[-1:]) * how.max_tokens, how.max_tokens, is_finished=False)
            for prompt in prompts
        ]

    def score(self, prompts: Sequence[ScoredPrompt]) -> list[Scored]:
        self._take(prompts)
        return [Scored(-sum(prompt.continuation) / 100, is_greedy=False) for prompt in prompts]
