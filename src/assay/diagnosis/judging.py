"""Makes findings: estimates how much score the affected samples cost, and decides whether that is material.

The thresholds (docs/triage.md) are strict, because even a healthy model shows some of every sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from assay.diagnosis.causes import Cause  # noqa: TC001 - msgspec resolves the annotations
from assay.diagnosis.findings import Confidence, Example, Finding, LossReference

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts

    Detector = Callable[[Evidence], Iterator["Found"]]

_FACTORS = {Confidence.CERTAIN: 1.0, Confidence.LIKELY: 0.8, Confidence.POSSIBLE: 0.5}
_MATERIAL = {LossReference.BASELINE: (0.01, 0.2), LossReference.CHECK: (0.02, 0.25), LossReference.FULL: (0.05, 0.1)}
"""Least gain in score and least share of the loss for a cause."""
_FEWEST = 5
"""Least number of affected samples for a cause."""
_MOST = 0.5
"""Least share of what is missing to the full score, if nothing tells what the affected samples would score."""
_HARMLESS = 0.5
"""A sign is harmless if samples with it score more than this share of what the others do."""
_HARMLESS_ALONE = 0.25
"""A sign is harmless if samples with it score more than this, and there are no others."""


class Found(NamedTuple):
    """A finding and the samples that it is about."""

    finding: Finding
    places: frozenset[tuple[str, int]]
    repaired: Mapping[tuple[str, int], float] = {}
    """By sample, the score that it would have; empty if that is not known."""


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """What a detector saw, before it is judged."""

    cause: Cause
    evidence: str
    advice: str
    affected: Sequence[SampleFacts]
    of: int
    confidence: Confidence
    repaired_to: Callable[[SampleFacts], float] | None = None
    """The score that a repaired sample would have; None: the baseline's or, without one, the mean of the others."""
    is_measured: bool = False
    """``repaired_to`` gives scores of repaired texts, by the task's own filter and metric."""
    may_be_cause: bool = True
    show: Callable[[SampleFacts], str] | None = None
    """The text of an example."""


def judge(evidence: Evidence, suspicion: Suspicion) -> Found:
    """Turn a suspicion into a finding, by the gain in score if the affected samples were repaired."""
    affected = [sample for sample in suspicion.affected if sample.score is not None]
    estimate = evidence.estimate(affected, suspicion.repaired_to)
    is_cause, share = is_material(evidence, estimate.gain), share_of_loss(evidence, estimate.gain)
    if estimate.repaired is None:
        share = _share_of_missing(evidence, affected)
        is_cause = evidence.loss.is_real and share >= _MOST
    return Found(
        Finding(
            cause=suspicion.cause,
            evidence=suspicion.evidence,
            advice=suspicion.advice,
            samples=len(suspicion.affected),
            of=suspicion.of,
            confidence=suspicion.confidence,
            is_measured=suspicion.is_measured,
            is_cause=suspicion.may_be_cause and is_cause and len(affected) >= _FEWEST,
            weight=share * _FACTORS[suspicion.confidence],
            score=estimate.score,
            score_without=estimate.without,
            score_repaired=estimate.repaired,
            examples=examples_of(suspicion.affected, suspicion.show),
        ),
        frozenset(sample.place for sample in suspicion.affected),
        {} if estimate.repaired is None else evidence.repaired_scores(affected, suspicion.repaired_to),
    )


def judge_all(evidence: Evidence, suspicion: Suspicion) -> Found:
    """Judge a suspicion that concerns every sample, and could explain the whole loss.

    Without a baseline nothing tells what the samples would score, so its presence alone makes it a cause.
    """
    found = judge(evidence, suspicion)
    loss = evidence.loss
    if loss.against is LossReference.BASELINE:
        return found
    finding = msgspec.structs.replace(
        found.finding,
        is_cause=suspicion.may_be_cause and loss.is_real,
        weight=_FACTORS[suspicion.confidence] if loss.is_real else 0.0,
        score_without=None,
        score_repaired=None,
    )
    return found._replace(finding=finding, repaired={})


def is_material(evidence: Evidence, gain: float) -> bool:
    """Whether a gain in score is large enough for a cause."""
    least, share = _MATERIAL[evidence.loss.against]
    return evidence.loss.is_real and gain >= max(least, share * evidence.loss.size)


def share_of_loss(evidence: Evidence, gain: float) -> float:
    """The share of the loss that a gain would recover, from 0 to 1."""
    return min(1.0, gain / evidence.loss.size) if evidence.loss.is_real else 0.0


def _share_of_missing(evidence: Evidence, affected: Sequence[SampleFacts]) -> float:
    """The affected samples' share of what is missing to the full score."""
    missing = sum(1 - (sample.score or 0.0) for sample in evidence.scored)
    return sum(1 - (sample.score or 0.0) for sample in affected) / missing if missing else 0.0


def is_harmless(evidence: Evidence, affected: Sequence[SampleFacts]) -> bool:
    """Whether samples score about as well as the others in spite of a sign, so that it is normal for this model.

    False if the baseline's texts are known, because they tell what is normal.
    """
    if evidence.baseline is not None and evidence.baseline.has_facts:
        return False
    places = {sample.place for sample in affected}
    others = [sample for sample in evidence.generated if sample.place not in places]
    if not evidence.has_enough_others(len(others)):
        return mean_score(affected) > _HARMLESS_ALONE
    return mean_score(affected) > _HARMLESS * mean_score(others)


def as_remark(found: Found) -> Found:
    """The same finding as a remark."""
    return found._replace(finding=msgspec.structs.replace(found.finding, is_cause=False))


def exceeds_baseline(
    evidence: Evidence, shows: Callable[[SampleFacts], bool], samples: Sequence[SampleFacts], *, least: float
) -> bool:
    """Whether a larger share of samples shows a sign than in the baseline.

    Args:
        evidence: the run and its baseline.
        shows: whether a sample shows the sign.
        samples: the samples to examine.
        least: the least excess over the baseline's share; without a baseline, the least share.
    """
    if not samples:
        return False
    share = sum(map(shows, samples)) / len(samples)
    return share - (evidence.in_baseline(shows) or 0.0) >= least


def examples_of(
    affected: Collection[SampleFacts], show: Callable[[SampleFacts], str] | None = None
) -> tuple[Example, ...]:
    """Three of the affected samples, from the beginning, the middle and the end."""
    ordered = list(affected)
    chosen = dict.fromkeys((0, len(ordered) // 2, len(ordered) - 1)) if ordered else {}
    return tuple(
        Example(ordered[place].task, ordered[place].doc_id, show(ordered[place]) if show else "") for place in chosen
    )


def percent(part: int, whole: int) -> str:
    """A share as text: ``31 of 250 (12%)``."""
    return f"{part} of {whole} ({part / whole:.0%})" if whole else f"{part} of 0"


def mean_score(samples: Sequence[SampleFacts]) -> float:
    """Mean score of scored samples; NaN if there are none."""
    return sum(sample.score or 0.0 for sample in samples) / len(samples) if samples else float("nan")
