"""Replies that say something of given tokens: of all in one, or of one that a request was about."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.logprobs import read_echo
from assay.client.native_endpoints import sglang_body
from assay.client.replies import ReplyError, decode_forgivingly
from assay.identity.generating import read_generation
from assay.identity.positions import Position, position_of
from assay.identity.top_logprobs import TOP, token_name
from assay.types import FailureCause, LogprobSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.logprobs import EchoedPrompt
    from assay.types import ModelSpec


def whole_body(source: LogprobSource, spec: ModelSpec, text: str | Sequence[int]) -> bytes:
    """The body that asks for the log-probabilities of a whole text in one request.

    Args:
        source: how the server returns them; not llama.cpp's own way.
        spec: the served name, and the seed.
        text: the text, or its token ids.
    """
    if source is LogprobSource.SGLANG:
        return sglang_body(json.dumps(text), top=TOP)
    wanted: dict[str, Any] = {"echo": True, "logprobs": TOP}
    if source is LogprobSource.PROMPT_LOGPROBS:
        wanted = {"prompt_logprobs": TOP}
    body = {"model": spec.model, "prompt": text, "max_tokens": 1, "temperature": 0, "seed": spec.seed, **wanted}
    return json.dumps(body).encode("ascii")


def read_whole(body: bytes, given: Sequence[Position], count: int | None) -> tuple[Position, ...]:
    """The last tokens of a text, which were given, from the body of a 200.

    Args:
        body: the reply's body.
        given: the tokens.
        count: how many tokens the whole text has; None if it was sent as text.

    Raises:
        ReplyError: the text was split into other tokens than those given, or one has no log-probabilities.
    """
    echo = read_echo(body)
    start = len(echo.logprobs) - len(given)
    if start < 0 or (count is not None and len(echo.logprobs) != count):
        raise _other_tokens(given, echo)
    if count is None and "".join(echo.texts[start:]) != "".join(each.token for each in given):
        raise _other_tokens(given, echo)
    return tuple(_echoed(echo, start + place, each) for place, each in enumerate(given))


def _echoed(echo: EchoedPrompt, place: int, given: Position) -> Position:
    logprob = echo.logprobs[place]
    if logprob is None:
        raise _unreadable(f"the reply has no log-probability of the token at place {place}, {given.token!r}")
    candidates = echo.candidates(place)
    listed = [(each.text, each.logprob, each.id) for each in candidates]
    ids = {each.id for each in candidates}
    if given.id is not None and None not in ids and given.id not in ids:
        raise _unreadable(f"the reply has no log-probability of token {given.id} in its place, {place}")
    return _with_likeliest(position_of(given.token, logprob, listed, given.id), given)


def read_at_token(body: bytes, given: Position) -> Position:
    """What stands in the place of a given token, from a reply that generated one there.

    The given token's log-probability is known if it is among the likeliest.

    Raises:
        ReplyError: the reply is none.
    """
    found = read_generation(body).positions[0]
    return msgspec.structs.replace(
        found, token=given.token, id=given.id, is_text=given.is_text, logprob=logprob_among(found, given)
    )


def logprob_among(found: Position, given: Position) -> float | None:
    """A given token's log-probability among the likeliest at a position; None if it is not among them."""
    by_id = given.id is not None and all(each.id is not None for each in found.top)
    same = (each.logprob for each in found.top if (each.id == given.id if by_id else each.token == given.token))
    return next(same, None)


class _Listed(msgspec.Struct):
    token: str
    logprob: float | None = None
    bytes: list[int] | None = None
    id: int | None = None


class _Generated(_Listed):
    top_logprobs: list[_Listed] = []


class _Native(msgspec.Struct):
    content: str
    tokens_evaluated: int
    completion_probabilities: list[_Generated] = []


_native_decoder = msgspec.json.Decoder(_Native)


def read_native_token(body: bytes, given: Position) -> Position:
    """A given token's log-probability and the likeliest in its place, from llama.cpp's own reply.

    llama.cpp gives none where the token is a part of a character: then the position is empty.

    Raises:
        ReplyError: the reply is none of llama.cpp's.
    """
    try:
        reply = decode_forgivingly(_native_decoder, _Native, body)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"the reply is none of llama.cpp's: {error}") from None
    if not reply.completion_probabilities:
        return Position(given.token, id=given.id, is_text=given.is_text)
    (own, *_) = reply.completion_probabilities
    if own.id is not None and given.id is not None and own.id != given.id:
        raise _unreadable(f"the reply is about token {own.id}, not {given.id}: the server knows no logit_bias")
    listed = [(token_name(each.token, each.bytes), each.logprob, each.id) for each in own.top_logprobs]
    return _with_likeliest(position_of(given.token, own.logprob, listed, given.id), given)


def _with_likeliest(found: Position, given: Position) -> Position:
    return msgspec.structs.replace(found, is_text=given.is_text)


def _other_tokens(given: Sequence[Position], echo: EchoedPrompt) -> ReplyError:
    there = "".join(echo.texts[-len(given) :])
    return _unreadable(
        f"the server splits the text into other tokens: it ends with {there[-60:]!r} in {len(given)} tokens, of "
        f"{len(echo.logprobs)} altogether"
    )


def _unreadable(message: str) -> ReplyError:
    return ReplyError(FailureCause.UNREADABLE_REPLY, message)
