"""Answers with the log-probabilities of all their tokens, and the requests for them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.replies import ReplyError, decode_forgivingly
from assay.identity.generating import StatedEntry, StatedLogprobs  # noqa: TC001 - msgspec resolves the annotations
from assay.identity.top_logprobs import TOP, token_name
from assay.types import FailureCause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.types import EndpointKind

_IMPOSSIBLE = -1000.0
_EQUAL = 1e-3


class Listed(msgspec.Struct, frozen=True):
    """A token in a list of the likeliest."""

    token: str
    """Its text, or its bytes in hexadecimal where they are no text."""
    logprob: float


class Step(msgspec.Struct, frozen=True):
    """One generated token, as the server states it."""

    token: str
    """As in :class:`Listed`."""
    text: bytes | None
    """Its bytes; None where they are not known."""
    logprob: float | None
    listed: tuple[Listed, ...]
    """The likeliest tokens, in the server's order, without those whose probability is stated as none."""

    @property
    def likeliest(self) -> tuple[Listed, ...]:
        """At most ``TOP``, by falling probability: the same ones whatever was drawn."""
        return tuple(sorted(self.listed, key=lambda each: -each.logprob)[:TOP])

    @property
    def place(self) -> int | None:
        """Where among the likeliest the token itself is; None if it is not there."""
        return next(
            (
                place
                for place, each in enumerate(self.likeliest)
                if each.token == self.token and (self.logprob is None or abs(each.logprob - self.logprob) < _EQUAL)
            ),
            None,
        )

    @property
    def top(self) -> dict[str, float]:
        """By token, its log-probability; tokens with the same text together."""
        merged: dict[str, float] = {}
        for each in self.likeliest:
            known = merged.get(each.token)
            merged[each.token] = each.logprob if known is None else math.log(math.exp(known) + math.exp(each.logprob))
        return merged

    @property
    def logprobs(self) -> list[float]:
        """Of the likeliest tokens, by falling probability."""
        return [each.logprob for each in self.likeliest]


class StatedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, and what the server states of it."""

    text: str
    """With the reasoning before it, where the server gives that in a field of its own."""
    has_reasoning: bool
    finish_reason: str | None
    steps: tuple[Step, ...]
    """Empty if the server gives no log-probabilities."""
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    """How many of the prompt's tokens came from the cache; None where the server does not say."""


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: StatedLogprobs | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Reply)


def answer_body(endpoint: EndpointKind, model: str, prompt: str, *, with_logprobs: bool = True, **fields: Any) -> bytes:
    """The body that asks for an answer, at temperature 0 unless `fields` say otherwise."""
    asked: dict[str, Any] = (
        {"messages": [{"role": "user", "content": prompt}]} if endpoint == "chat" else {"prompt": prompt}
    )
    if with_logprobs:
        asked |= {"logprobs": True, "top_logprobs": TOP} if endpoint == "chat" else {"logprobs": TOP}
    return json.dumps({"model": model, **asked, "temperature": 0, **fields}).encode("ascii")


def read_stated_answer(body: bytes) -> StatedAnswer:
    """Read the body of a 200.

    Raises:
        ReplyError: it is no answer.
    """
    try:
        reply = decode_forgivingly(_decoder, _Reply, body)
    except (ValueError, RecursionError) as error:
        raise ReplyError(FailureCause.UNREADABLE_REPLY, f"the reply cannot be read: {error}") from None
    if not reply.choices:
        raise ReplyError(FailureCause.EMPTY_CHOICES, "the reply has no choices")
    choice, usage = reply.choices[0], reply.usage or _Usage()
    message = choice.message or _Message(choice.text)
    reasoning = message.reasoning_content or message.reasoning or ""
    details = usage.prompt_tokens_details
    return StatedAnswer(
        text=reasoning + (message.content or ""),
        has_reasoning=bool(reasoning),
        finish_reason=choice.finish_reason,
        steps=_steps(choice.logprobs),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=None if details is None else details.cached_tokens,
    )


def _steps(logprobs: StatedLogprobs | None) -> tuple[Step, ...]:
    if logprobs is None:
        return ()
    if logprobs.content:
        return tuple(map(_step, logprobs.content))
    if not logprobs.tokens or not logprobs.token_logprobs or not logprobs.top_logprobs:
        return ()
    rows = zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=False)
    return tuple(
        Step(
            token,
            None if "\ufffd" in token else token.encode(),
            value,
            _listed((top or {}).items()),
        )
        for token, value, top in rows
    )


def _step(entry: StatedEntry) -> Step:
    listed = _listed((token_name(each.token, each.bytes), each.logprob) for each in entry.top_logprobs)
    data = bytes(entry.bytes) if entry.bytes is not None else None if "\ufffd" in entry.token else entry.token.encode()
    return Step(token_name(entry.token, entry.bytes), data, entry.logprob, listed)


def _listed(entries: Iterable[tuple[str, float | None]]) -> tuple[Listed, ...]:
    """The entries without impossible ones."""
    return tuple(Listed(token, value) for token, value in entries if value is not None and value > _IMPOSSIBLE)
