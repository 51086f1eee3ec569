"""A model's own greedy answer, each token with the likeliest ones in its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.replies import ReplyError, decode_forgivingly
from assay.identity.positions import Position, position_of
from assay.identity.top_logprobs import TOP, token_name
from assay.types import FailureCause

if TYPE_CHECKING:
    from assay.identity.token_ids import Prompt
    from assay.types import ModelSpec


class Generation(msgspec.Struct, frozen=True):
    """An answer, token by token."""

    positions: tuple[Position, ...]
    prompt_tokens: int | None = None
    """How many tokens the server counts in the prompt."""
    finish_reason: str | None = None


class StatedEntry(msgspec.Struct):
    """A token in chat completions' ``logprobs``."""

    token: str
    logprob: float | None = None
    bytes: list[int] | None = None
    id: int | None = None
    top_logprobs: list[StatedEntry] = []


class StatedLogprobs(msgspec.Struct):
    """A choice's ``logprobs``: chat completions' field, and completions' three."""

    content: list[StatedEntry] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class _Choice(msgspec.Struct):
    logprobs: StatedLogprobs | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Reply)


def generate_body(spec: ModelSpec, prompt: Prompt, max_tokens: int, *, wants_ids: bool = False) -> bytes:
    """The body that asks for a greedy answer with its log-probabilities.

    Args:
        spec: the served name, and the seed.
        prompt: a chat for chat completions; else a text or token ids.
        max_tokens: the most tokens.
        wants_ids: ask for the ids of the tokens too, as vLLM takes it.
    """
    asked: dict[str, Any]
    if not isinstance(prompt, str) and prompt and isinstance(prompt[0], dict):
        asked = {"messages": prompt, "logprobs": True, "top_logprobs": TOP}
    else:
        asked = {"prompt": prompt, "logprobs": TOP}
    ids = {"return_token_ids": True} if wants_ids else {}
    return json.dumps(
        {"model": spec.model, **asked, "max_tokens": max_tokens, "temperature": 0, "seed": spec.seed, **ids}
    ).encode("ascii")


def read_generation(body: bytes) -> Generation:
    """Read the body of a 200.

    Raises:
        ReplyError: it does not hold the likeliest tokens of each position.
    """
    try:
        reply = decode_forgivingly(_decoder, _Reply, body)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"the reply's log-probabilities cannot be read: {error}") from None
    choice = reply.choices[0] if reply.choices else _Choice()
    positions = _positions(choice.logprobs or StatedLogprobs(), choice.token_ids)
    if not positions:
        raise _unreadable("the reply has no log-probabilities of the tokens generated")
    return Generation(positions, None if reply.usage is None else reply.usage.prompt_tokens, choice.finish_reason)


def _positions(logprobs: StatedLogprobs, ids: list[int] | None) -> tuple[Position, ...]:
    if logprobs.content is not None:
        return tuple(
            _of_entry(entry, _at(ids, place, len(logprobs.content)) if entry.id is None else entry.id)
            for place, entry in enumerate(logprobs.content)
        )
    tokens, values, tops = logprobs.tokens or [], logprobs.token_logprobs or [], logprobs.top_logprobs or []
    if not len(tokens) == len(values) == len(tops):
        raise _unreadable("the reply's tokens, token_logprobs and top_logprobs are missing or of unequal length")
    return tuple(
        msgspec.structs.replace(
            position_of(text, value, ((other, each, None) for other, each in (top or {}).items())),
            id=_at(ids, place, len(tokens)),
            is_text="\ufffd" not in text,
        )
        for place, (text, value, top) in enumerate(zip(tokens, values, tops, strict=True))
    )


def _of_entry(entry: StatedEntry, token_id: int | None) -> Position:
    listed = [(token_name(each.token, each.bytes), each.logprob, each.id) for each in entry.top_logprobs]
    position = position_of(token_name(entry.token, entry.bytes), entry.logprob, listed, token_id)
    return msgspec.structs.replace(position, is_text="\ufffd" not in entry.token)


def _at(ids: list[int] | None, place: int, count: int) -> int | None:
    """The id at a place, if there is one for each token."""
    return ids[place] if ids is not None and len(ids) == count else None


def _unreadable(message: str) -> ReplyError:
    return ReplyError(FailureCause.UNREADABLE_REPLY, message)
