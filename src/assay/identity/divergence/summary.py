"""A comparison in figures: how far two models are apart, how sure that is, and where in a text they part."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from assay.identity.divergence.phases import Pattern, Phase, TextErrors, find_pattern
from assay.stats.intervals import clustered_mean_interval, t_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.identity.divergence.positions import PositionDifference
    from assay.identity.positions import Alternative

EVIDENCE = 0.3
"""Nats between the two likeliest tokens, above which numerical noise hardly ever turns them around."""
_TIMES = 3.0
"""How many times larger an error must be under load, or in decoding, to be named."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean, and its interval, clustered by prompt."""

    value: float
    low: float
    high: float


class TextDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt's answer as two models see it."""

    name: str
    prompt: str | tuple[dict[str, object], ...]
    reference_prompt_tokens: int | None
    candidate_prompt_tokens: int | None
    positions: tuple[PositionDifference, ...]
    loaded: tuple[PositionDifference, ...] = ()
    """The same while other requests were answered."""
    decoded: tuple[PositionDifference, ...] = ()
    """From the candidate's own answer instead, up to and with the first token that differs."""

    candidate_tops: tuple[tuple[Alternative, ...], ...] = ()
    """The candidate's likeliest tokens at each position of the text."""
    candidate_ids: tuple[int, ...] | None = None
    """The prompt's token ids with the candidate, if known."""

    @property
    def first_divergence(self) -> PositionDifference | None:
        """The first position at which the two call different tokens likeliest."""
        return next((each for each in self.positions if not each.is_same_top), None)

    @property
    def has_other_prompt(self) -> bool:
        """Whether the two models read prompts of different lengths."""
        here, there = self.reference_prompt_tokens, self.candidate_prompt_tokens
        return here is not None and there is not None and here != there


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All prompts together."""

    texts: int
    tokens: int
    divergence: Estimate
    """Mean, in nats; its interval is clustered by prompt."""
    divergence_at_most: float
    """The mean of the positions' upper bounds."""
    delta: Estimate | None
    """Mean change of the tokens' log-probabilities."""
    absolute_delta: Estimate | None
    """Mean size of that change."""
    same_top: float
    """Share of positions at which both call the same token likeliest."""
    overlap: float
    """Mean share of common tokens in the lists."""
    diverged: int
    """Prompts with a position at which the two call different tokens likeliest."""
    evident: int
    """Those of them whose first such position has a margin above ``EVIDENCE``."""
    largest_margin: float | None
    """The largest margin of a first divergence, in nats."""
    pattern: Pattern
    other_prompts: int
    """Prompts that have another number of tokens with the candidate."""
    loaded_divergence: float | None = None
    """Mean divergence while other requests were answered."""
    decoded_divergence: float | None = None
    """Mean divergence of the candidate's own answers, as far as they agree."""


def summarise(texts: Sequence[TextDifference], confidence: float = 0.95) -> Summary:
    """The figures of a comparison.

    Args:
        texts: one for each prompt, with at least one position altogether.
        confidence: of the intervals, two-sided.
    """
    numbered = [(number, each) for number, text in enumerate(texts) for each in text.positions]
    clusters, positions = [number for number, _ in numbered], [each for _, each in numbered]
    deltas = [(number, each.delta) for number, each in numbered if each.delta is not None]
    firsts = [first for text in texts if (first := text.first_divergence) is not None]
    margins = [each.margin for each in firsts if each.margin is not None]
    loaded, decoded = ([each for text in texts for each in getattr(text, kind)] for kind in ("loaded", "decoded"))
    of_deltas = [number for number, _ in deltas]

    def interval(values: list[float], groups: list[int], *, at_least: float) -> Estimate:
        found = clustered_mean_interval(values, groups, confidence, (at_least, float("inf")))
        return Estimate(fmean(values), found.low, found.high)

    return Summary(
        texts=len(texts),
        tokens=len(positions),
        divergence=interval([each.divergence for each in positions], clusters, at_least=0),
        divergence_at_most=fmean(each.divergence_at_most for each in positions),
        delta=interval([value for _, value in deltas], of_deltas, at_least=-float("inf")) if deltas else None,
        absolute_delta=interval([abs(value) for _, value in deltas], of_deltas, at_least=0) if deltas else None,
        same_top=fmean(each.is_same_top for each in positions),
        overlap=fmean(each.overlap for each in positions),
        diverged=len(firsts),
        evident=sum(margin > EVIDENCE for margin in margins),
        largest_margin=max(margins, default=None),
        pattern=_pattern(texts),
        other_prompts=sum(text.has_other_prompt for text in texts),
        loaded_divergence=fmean(each.divergence for each in loaded) if loaded else None,
        decoded_divergence=fmean(each.divergence for each in decoded) if decoded else None,
    )


def _pattern(texts: Sequence[TextDifference]) -> Pattern:
    if any(text.has_other_prompt for text in texts):
        return Pattern(phase=Phase.PROMPT)
    if ratio := _times_larger([(text.loaded, text.positions) for text in texts]):
        return Pattern(phase=Phase.UNDER_LOAD, ratio=ratio)
    if ratio := _times_larger([(text.decoded, text.positions) for text in texts]):
        decoded = find_pattern([TextErrors(text.decoded, text.reference_prompt_tokens) for text in texts])
        return msgspec.structs.replace(decoded, in_decoding=True, ratio=decoded.ratio or ratio)
    return find_pattern([TextErrors(text.positions, text.reference_prompt_tokens) for text in texts])


def _times_larger(pairs: Sequence[tuple[Sequence[PositionDifference], Sequence[PositionDifference]]]) -> float | None:
    """How many times larger the one error is than the other at the same positions; None if that is not certain."""
    differences, one, other = [], 0.0, 0.0
    for here, there in pairs:
        known = {each.index: each.divergence for each in there}
        both = [(each.divergence, known[each.index]) for each in here if each.index in known]
        if both:
            differences.append(fmean(left - _TIMES * right for left, right in both))
            one += sum(left for left, _ in both)
            other += sum(right for _, right in both)
    if len(differences) < 3:
        return None
    mean = fmean(differences)
    spread = (sum((each - mean) ** 2 for each in differences) / (len(differences) - 1) / len(differences)) ** 0.5
    if mean <= _LEAST or mean <= t_quantile(0.99, len(differences) - 1) * spread:
        return None
    return one / max(other, 1e-9)


_LEAST = 1e-3
"""Nats by which an error must be larger to be named."""
