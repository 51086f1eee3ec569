"""What a server says of one position of a text: the token there, its log-probability, and the likeliest tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from assay.identity.top_logprobs import MOST, TOP, beyond_one, is_possible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Alternative(msgspec.Struct, frozen=True):
    """A token that could stand at a position."""

    token: str
    """Its text; where that is not valid UTF-8, its bytes in hexadecimal, which tell halves of characters apart."""
    logprob: float
    """Natural logarithm."""
    id: int | None = None
    """In the model's vocabulary, where the server says it."""


class Position(msgspec.Struct, frozen=True):
    """A token in its place."""

    token: str
    """As :attr:`Alternative.token`."""
    logprob: float | None = None
    """Natural logarithm; None where the server gives none."""
    top: tuple[Alternative, ...] = ()
    """The likeliest tokens of the place, best first, at most :data:`TOP`; empty where the server gives none."""
    id: int | None = None
    """In the model's vocabulary, where it is known."""
    is_text: bool = True
    """Whether the token is valid UTF-8, so that :attr:`token` is its text."""

    @property
    def rank(self) -> int | None:
        """The token's rank among the likeliest, from 1; None if it is not among them or has no log-probability."""
        if self.logprob is None or not self.top or self.logprob < self.top[-1].logprob:
            return None
        return 1 + sum(each.logprob > self.logprob for each in self.top)

    @property
    def margin(self) -> float | None:
        """How far the likeliest token is above the second, in nats; None if fewer than two are listed."""
        return self.top[0].logprob - self.top[1].logprob if len(self.top) > 1 else None

    @property
    def least(self) -> float:
        """The least log-probability listed: no token that is not listed has more; 0 if none is."""
        return self.top[-1].logprob if self.top else 0.0


def position_of(
    token: str,
    logprob: float | None,
    listed: Iterable[tuple[str, float | None, int | None]],
    token_id: int | None = None,
) -> Position:
    """A position from what a server lists.

    Impossible tokens are left out, those that cannot be told apart are added up, and no more than :data:`TOP` are kept:
    vLLM adds the token itself to the list where it is not among the likeliest.

    Args:
        token: the token in place.
        logprob: its log-probability, if the server says it.
        listed: the tokens listed, with log-probabilities and ids.
        token_id: the token's id, if known.

    Raises:
        ReplyError: a probability exceeds 1, or all together do.
    """
    together: dict[tuple[str, int | None], float] = {}
    for text, value, number in listed:
        if not is_possible(value):
            continue
        key = text, number
        together[key] = value if key not in together else math.log(math.exp(together[key]) + math.exp(value))
    top = sorted((Alternative(text, value, number) for (text, number), value in together.items()), key=_from_likeliest)
    if sum(math.exp(each.logprob) for each in top) > MOST:
        raise beyond_one()
    return Position(token, logprob if is_possible(logprob) else None, tuple(top[:TOP]), token_id)


def common_names(one: Position, other: Position) -> tuple[dict[str, float], dict[str, float]]:
    """Both positions' likeliest tokens under names that are the same for the same token.

    Ids are the names where both servers say them, else texts.

    Returns:
        Log-probabilities by name.
    """
    by_id = all(each.id is not None for each in (*one.top, *other.top))
    return _named(one.top, by_id=by_id), _named(other.top, by_id=by_id)


def _named(top: Sequence[Alternative], *, by_id: bool) -> dict[str, float]:
    named: dict[str, float] = {}
    for each in top:
        name = f"#{each.id}" if by_id else each.token
        value = each.logprob
        named[name] = value if name not in named else math.log(math.exp(named[name]) + math.exp(value))
    return named


def _from_likeliest(alternative: Alternative) -> float:
    return -alternative.logprob
