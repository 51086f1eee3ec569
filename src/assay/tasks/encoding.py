"""Prompts as token ids, split and cut exactly as lm-eval's ``local-completions`` client does with a tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from assay.types import TokenSpan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.tasks.tokenizer import Tokenizer

DEFAULT_MAX_LENGTH = 2048
"""lm-eval's ``max_length`` for servers, where the user gives none."""


class ScoredTokens(NamedTuple):
    """A prompt, and the part of it that a log-likelihood is about."""

    ids: list[int]
    span: TokenSpan


class PromptEncoder:
    """Turns texts into the token ids that lm-eval would send.

    Args:
        tokenizer: the model's.
        max_length: the model's context length in tokens. One of them is kept free, because every request generates one.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int | None) -> None:
        self.tokenizer = tokenizer
        self.longest = (max_length or DEFAULT_MAX_LENGTH) - 1
        """Tokens of a prompt at most; more are cut off at its beginning."""

    def pair(self, context: str, continuation: str) -> ScoredTokens:
        """The tokens of `context` + `continuation`, of which those of `continuation` are scored.

        The context is encoded by itself, without blanks at its end, which belong to the word that follows. What the
        whole has beyond as many tokens is the continuation. An empty context becomes the token that stands before all
        text.
        """
        if context:
            before = self.tokenizer.encode_context(context.rstrip())
            whole = self.tokenizer.encode(context + continuation)
            return self._cut([*before, *whole[len(before) :]], len(before))
        ids = self.tokenizer.encode(continuation)
        prefix = self.tokenizer.prefix_token_id
        return self._cut(ids if ids[:1] == [prefix] else [prefix, *ids], 1)

    def windows(self, text: str) -> Iterator[ScoredTokens]:
        """The tokens of `text`, each scored once, in as few prompts as the context length allows.

        The first window's context is the token that stands before all text. Later ones have one token of context, the
        last one as many as fit.
        """
        ids = self.tokenizer.encode(text)
        step = self.longest - 1
        for start in range(0, len(ids), step):
            stop = min(start + step, len(ids))
            if start == 0:
                yield self._cut([self.tokenizer.prefix_token_id, *ids[:stop]], 1)
            else:
                first = stop - step - 1
                yield self._cut(ids[first:stop], start - first)

    def generation(self, prompt: str, max_gen_toks: int) -> list[int]:
        """The tokens of `prompt`, cut at the beginning so that `max_gen_toks` more have room."""
        return self.tokenizer.encode(prompt)[-(self.longest - max_gen_toks) :]

    def _cut(self, ids: list[int], context_length: int) -> ScoredTokens:
        cut = max(0, len(ids) - self.longest)
        return ScoredTokens(ids[cut:], TokenSpan(start=context_length - cut, stop=len(ids) - cut))
