"""Reads all completions of a reply, with their tokens if the server returns them.

Tokens come in one of two shapes: the completions protocol's parallel lists of ``tokens`` and ``token_logprobs``, or the
chat protocol's list ``content`` of objects, which llama.cpp gives on its completions endpoint as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from assay.client.logprobs import Number, read_echo
from assay.client.replies import (
    Choice,
    ReplyError,
    content_of,
    decode_forgivingly,
    finish_reason_of,
    in_order,
    read_reply,
)
from assay.types import Completion, CompletionToken, FailureCause

if TYPE_CHECKING:
    from assay.client.replies import ParsedReply
    from assay.types import EndpointKind


class _Token(msgspec.Struct):
    token: str
    logprob: Number | None = None


class _Logprobs(msgspec.Struct):
    tokens: list[str] | None = None
    token_logprobs: list[Number | None] | None = None
    content: list[_Token] | None = None


class _Choice(Choice):
    logprobs: _Logprobs | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]


_decoder = msgspec.json.Decoder(_Reply)


def read_completions(body: bytes, endpoint: EndpointKind, count: int) -> tuple[ParsedReply, tuple[Completion, ...]]:
    """Parse the body of a 200: the reply as for a single completion, and all completions.

    Args:
        body: the reply's body.
        endpoint: the endpoint that sent it.
        count: how many completions were asked for.

    Raises:
        ReplyError: the body is no answer, does not hold that many completions, or not a log-probability for each token.
    """
    parsed = read_reply(body, endpoint)
    choices = in_order(_decode(body).choices)
    if len(choices) < count:
        message = f"{count} completions were asked for and {len(choices)} came"
        raise ReplyError(FailureCause.UNREADABLE_REPLY, message)
    return parsed, tuple(_completion(choice, endpoint) for choice in choices[:count])


def read_echoed(body: bytes, prompt: str) -> tuple[ParsedReply, Completion]:
    """A prompt's own tokens, from the body of a 200; the token that the model added is left out.

    Raises:
        ReplyError: the body does not hold them.
    """
    echo = read_echo(body)
    if prompt and not echo.texts:
        raise ReplyError(FailureCause.UNREADABLE_REPLY, "the reply holds no token of the prompt")
    if None in echo.logprobs[1:]:  # only the first token may lack a log-probability: nothing precedes it
        raise ReplyError(
            FailureCause.UNREADABLE_REPLY, "the reply lacks log-probabilities of some of the prompt's tokens"
        )
    texts = list(echo.texts)
    if texts and not texts[0]:  # vLLM's prompt_logprobs say nothing of the first
        texts[0] = _first_text(prompt, texts[1:])
    tokens = tuple(
        CompletionToken(text, 0 if logprob is None else logprob)
        for text, logprob in zip(texts, echo.logprobs, strict=True)
    )
    return echo.parsed, Completion(text=prompt, finish_reason="length", tokens=tokens)


def _first_text(prompt: str, others: list[str]) -> str:
    """The text of a prompt's first token: what the other tokens leave; empty if that token is a BOS."""
    rest = "".join(others)
    if prompt.endswith(rest):
        return prompt.removesuffix(rest)
    # Some tokens are parts of characters, so only the text before the first of them can be compared.
    whole, _, _ = rest.partition("\ufffd")
    place = prompt.find(whole) if whole else -1
    return prompt[: place if place >= 0 else 1]


def _decode(body: bytes) -> _Reply:
    try:
        return decode_forgivingly(_decoder, _Reply, body)
    except (ValueError, RecursionError) as error:
        message = f"the reply's completions cannot be read: {error}"
        raise ReplyError(FailureCause.UNREADABLE_REPLY, message) from None


def _completion(choice: _Choice, endpoint: EndpointKind) -> Completion:
    finish_reason = finish_reason_of(choice)
    text, reasoning = content_of(choice, endpoint)
    return Completion(
        text=text or "",
        finish_reason=finish_reason,
        reasoning=reasoning,
        tokens=_tokens(choice.logprobs) if endpoint == "completions" else (),
    )


def _tokens(logprobs: _Logprobs | None) -> tuple[CompletionToken, ...]:
    if logprobs is None:
        return ()
    if logprobs.content is not None:
        return tuple(CompletionToken(entry.token, entry.logprob or 0) for entry in logprobs.content)
    if logprobs.tokens is None or logprobs.token_logprobs is None:
        return ()
    if len(logprobs.tokens) != len(logprobs.token_logprobs):
        raise ReplyError(
            FailureCause.UNREADABLE_REPLY,
            f"the reply has {len(logprobs.tokens)} tokens and {len(logprobs.token_logprobs)} log-probabilities of them",
        )
    pairs = zip(logprobs.tokens, logprobs.token_logprobs, strict=True)
    return tuple(CompletionToken(text, logprob or 0) for text, logprob in pairs)
