"""Prompts as token ids, split and cut exactly as lm-eval's ``local-completions`` client does with a tokenizer."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import UnsupportedTaskError
from assay.types import TokenSpan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.tasks.tokenizer import Tokenizer

DEFAULT_MAX_LENGTH = 2048
"""lm-eval's ``max_length`` for servers, where the user gives none."""
_CONTEXTS_KEPT = 64
"""A document's choices follow one another and share their context."""


class ScoredTokens(NamedTuple):
    """A prompt whose log-likelihood after some context is wanted."""

    context: tuple[int, ...]
    continuation: list[int]
    span: TokenSpan
    """Where the continuation lies; a negative start says that its beginning was cut off."""

    @property
    def ids(self) -> list[int]:
        """The whole prompt."""
        return [*self.context, *self.continuation]


class PromptEncoder:
    """Turns texts into the token ids that lm-eval would send.

    Args:
        tokenizer: the model's.
        max_length: the model's context length in tokens. One of them is kept free, because every request to a server
            generates one.
        is_local: the model answers in this process: as in lm-eval's ``hf``, no token is kept free, and the last one of
            a text that is scored needs no place, because nothing comes after it.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int | None, *, is_local: bool = False) -> None:
        self.tokenizer = tokenizer
        length = max_length or DEFAULT_MAX_LENGTH
        self.longest = length + 1 if is_local else length - 1
        """The most tokens of a prompt that is scored; a longer one is cut at its beginning."""
        self._longest_generating = length if is_local else length - 1
        self._is_local = is_local
        self._context_ids = functools.lru_cache(maxsize=_CONTEXTS_KEPT)(lambda text: tuple(tokenizer.encode(text)))

    def pair(self, context: str, continuation: str) -> ScoredTokens:
        """The tokens of `context` + `continuation`, of which those of `continuation` are scored.

        The context is encoded by itself, without spaces at its end, which belong to the next word. The continuation
        is the rest of the whole text's tokens. An empty context becomes the prefix token.
        """
        if context:
            before = self._context_ids(context.rstrip())
            whole = self.tokenizer.encode(context + continuation)
            return self._cut(before, whole[len(before) :])
        ids = self.tokenizer.encode(continuation)
        prefix = self.tokenizer.prefix_token_id
        return self._cut((prefix,), ids[1:] if ids[:1] == [prefix] else ids)

    def windows(self, text: str) -> Iterator[ScoredTokens]:
        """The tokens of `text`, each scored once, in as few prompts as the context length allows.

        The first window's context is the prefix token. Later ones have one token of context, the last one as many as
        fit.
        """
        ids = self.tokenizer.encode(text)
        step = self.longest - 1
        for start in range(0, len(ids), step):
            stop = min(start + step, len(ids))
            if start == 0:
                yield self._cut((self.tokenizer.prefix_token_id,), ids[:stop])
            else:
                yield self._cut(tuple(ids[stop - step - 1 : start]), ids[start:stop])

    def generation(self, prompt: str, max_gen_toks: int) -> list[int]:
        """The tokens of `prompt`, cut at the beginning to leave room for `max_gen_toks` more."""
        ids = self.tokenizer.encode(prompt)
        room = self._longest_generating - max_gen_toks
        if self._is_local and room < 1:
            raise UnsupportedTaskError(
                f"asks for {max_gen_toks} tokens, but the model's context length is {self._longest_generating}; see "
                "--gen-kwargs max_gen_toks=N"
            )
        return ids[-room:] if self.tokenizer.cuts_prompts else ids

    def _cut(self, context: tuple[int, ...], continuation: list[int]) -> ScoredTokens:
        cut = max(0, len(context) + len(continuation) - self.longest)
        start = len(context) - cut
        span = TokenSpan(start, start + len(continuation))
        return ScoredTokens(context[cut:], continuation[max(0, -start) :], span)
