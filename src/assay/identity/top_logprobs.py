"""The likeliest tokens at one position, as servers return them, and how far two such lists are apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.replies import ReplyError
from assay.types import FailureCause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeGuard

    from assay.types import EndpointKind

TOP = 20
"""How many tokens servers return at most: OpenAI's protocol and vLLM allow no more."""
_IMPOSSIBLE = -1000.0
"""Log-probabilities below it stand for "none": vLLM writes -9999 for minus infinity, which JSON does not know."""
_ROUNDED = 1e-3
MOST = 1.01
"""Sum of probabilities, with what low precision adds."""
_LEAST = 1e-5
"""Probability that rounding to four decimals may hide in twenty tokens together."""


class FirstToken(msgspec.Struct, frozen=True):
    """What a server says of the first token of an answer."""

    top: dict[str, float]
    """By token, its natural log-probability; the likeliest ones, at most ``TOP``."""
    prompt_tokens: int | None = None
    """How many tokens the server counts in the prompt."""


class _Entry(msgspec.Struct):
    token: str
    logprob: float | None = None
    bytes: list[int] | None = None


class _Content(_Entry):
    top_logprobs: list[_Entry] = []


class _Logprobs(msgspec.Struct):
    content: list[_Content] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class _Choice(msgspec.Struct):
    logprobs: _Logprobs | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_decoder = msgspec.json.Decoder(_Reply)


def first_token_body(endpoint: EndpointKind, model: str, prompt: str, seed: int) -> dict[str, Any]:
    """The body that asks for one token, with the likeliest ones in its place."""
    if endpoint == "chat":
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}], "logprobs": True}
        asked["top_logprobs"] = TOP
    else:
        asked = {"prompt": prompt, "logprobs": TOP}
    return {"model": model, **asked, "max_tokens": 1, "temperature": 0, "seed": seed}


def read_first_token(body: bytes) -> FirstToken:
    """Read the body of a 200.

    Raises:
        ReplyError: it holds no log-probabilities of the first token.
    """
    try:
        reply = _decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ReplyError(
            FailureCause.UNREADABLE_REPLY, f"the reply's log-probabilities cannot be read: {error}"
        ) from None
    logprobs = reply.choices[0].logprobs if reply.choices else None
    top: dict[str, float] = {}
    if logprobs is not None and logprobs.content:
        top = _merged(
            (token_name(entry.token, entry.bytes), entry.logprob) for entry in logprobs.content[0].top_logprobs
        )
    elif logprobs is not None and logprobs.top_logprobs and logprobs.top_logprobs[0]:
        top = _merged(logprobs.top_logprobs[0].items())
    if not top:
        raise ReplyError(
            FailureCause.UNREADABLE_REPLY, "the reply has no log-probabilities of the first token's alternatives"
        )
    if sum(map(math.exp, top.values())) > MOST:
        raise beyond_one()
    return FirstToken(top, None if reply.usage is None else reply.usage.prompt_tokens)


def token_name(text: str, data: Sequence[int] | None = None) -> str:
    """A token's text; where that is not valid UTF-8 and its bytes are known, these in hexadecimal."""
    return bytes(data).hex() if data and "\ufffd" in text else text


def _merged(entries: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """The entries without impossible ones, those with the same text together.

    Raises:
        ReplyError: a probability exceeds 1.
    """
    merged: dict[str, float] = {}
    for token, logprob in entries:
        if not is_possible(logprob):
            continue
        merged[token] = logprob if token not in merged else math.log(math.exp(merged[token]) + math.exp(logprob))
    return merged


def is_possible(logprob: float | None) -> TypeGuard[float]:
    """Whether a log-probability stands for a probability above 0.

    Raises:
        ReplyError: it is above 0 by more than rounding explains.
    """
    if logprob is None or not logprob > _IMPOSSIBLE:
        return False
    if logprob > _ROUNDED:
        raise beyond_one()
    return True


def beyond_one() -> ReplyError:
    """What is wrong with probabilities above 1."""
    message = "the reply's log-probabilities are none: their probabilities exceed 1"
    return ReplyError(FailureCause.UNREADABLE_REPLY, message)


def divergence(reference: Mapping[str, float], candidate: Mapping[str, float]) -> float:
    """A lower bound of the Kullback-Leibler divergence where only the likeliest tokens of both are known.

    Tokens of the reference that the candidate does not list have at most the candidate's least listed probability each;
    that share of what it does not list is chosen which makes the divergence smallest. Grouping tokens never increases
    the divergence (Cover and Thomas, Elements of Information Theory, 2nd ed., theorem 2.7.1), so the true one is at
    least as large.

    Args:
        reference: by token, its log-probability.
        candidate: likewise.

    Returns:
        Nats, at least 0.
    """
    shared = reference.keys() & candidate.keys()
    p = {token: math.exp(reference[token]) for token in reference}
    q = {token: math.exp(candidate[token]) for token in candidate}
    of_shared = sum(p[token] * math.log(p[token] / q[token]) for token in shared if p[token] > 0 < q[token])
    left_p = max(0.0, 1 - sum(p[token] for token in shared))
    left_q = max(_LEAST, 1 - sum(q[token] for token in shared))
    missing = min(left_p, sum(p[token] for token in p if token not in shared))
    rest = left_p - missing
    unlisted = max(_LEAST, 1 - sum(q.values()))
    most = min(unlisted, (len(p) - len(shared)) * min(q.values(), default=1.0))
    share = min(most, left_q * missing / left_p) if left_p > 0 else 0.0
    return max(0.0, of_shared + _term(missing, share) + _term(rest, left_q - share))


def _term(p: float, q: float) -> float:
    return 0.0 if p <= 0 else p * math.log(p / max(q, 1e-300))
