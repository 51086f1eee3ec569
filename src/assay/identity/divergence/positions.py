"""How far two readings of one text are apart, position by position."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

import msgspec

from assay.identity.positions import common_names
from assay.identity.top_logprobs import divergence
from assay.stats.divergence_bounds import divergence_at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.identity.positions import Position


class PositionDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A position of a text as two models see it."""

    index: int
    """From 0, the first token after the prompt."""
    token: str
    delta: float | None
    """The candidate's log-probability of the token less the reference's, in nats; None where one of them is unknown."""
    is_same_top: bool
    """Whether both call the same token likeliest."""
    overlap: float
    """The share of the shorter list of likeliest tokens that is in the other one, too."""
    divergence: float
    """Of the candidate from the reference, in nats; the least that the lists allow."""
    divergence_at_most: float
    """The most, if no unlisted token loses more than those that both list."""
    reference_rank: int | None
    candidate_rank: int | None
    """The token's rank with either, from 1; None beyond the lists."""
    margin: float | None
    """How far the reference's likeliest token is above its second, in nats: how much a flip says."""
    doubt: float
    """The probability that the reference leaves to all tokens but its likeliest: where it is small, nothing differs."""
    reference_top: str
    candidate_top: str
    """The likeliest token with either."""


def differences(reference: Sequence[Position], candidate: Sequence[Position]) -> tuple[PositionDifference, ...]:
    """Compare two readings, as far as both go. Positions are left out where a server lists nothing."""
    pairs = enumerate(zip(reference, candidate, strict=False))
    return tuple(_difference(index, one, other) for index, (one, other) in pairs if one.top and other.top)


def _difference(index: int, one: Position, other: Position) -> PositionDifference:
    here, there = common_names(one, other)
    likeliest, found = max(here, key=here.__getitem__), max(there, key=there.__getitem__)
    return PositionDifference(
        index=index,
        token=one.token,
        delta=other.logprob - one.logprob if one.logprob is not None and other.logprob is not None else None,
        is_same_top=likeliest == found,
        overlap=len(here.keys() & there.keys()) / min(len(here), len(there)),
        divergence=divergence(here, there),
        divergence_at_most=divergence_at_most(here, there),
        reference_rank=one.rank,
        candidate_rank=other.rank,
        margin=one.margin,
        doubt=max(0.0, 1 - exp(here[likeliest])),
        reference_top=one.top[0].token,
        candidate_top=other.top[0].token,
    )
