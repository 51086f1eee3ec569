"""Detects what happened to answers after the model wrote them, by what undoing it regains."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from assay.diagnosis.extraction import Where
from assay.diagnosis.findings import Confidence
from assay.diagnosis.judging import (
    Found,
    Suspicion,
    as_remark,
    exceeds_baseline,
    is_harmless,
    judge,
    mean_score,
    percent,
)
from assay.diagnosis.repairs import REPAIRS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts
    from assay.diagnosis.repairs import Repair

_BEYOND_BASELINE = 0.03
_SHARE = 0.01
_SHARE_UNMEASURED = 0.05


def altered(evidence: Evidence) -> Iterator[Found]:
    """Answers that a repair changes: escapes, other letters, a template's marks, reasoning, a question of their own."""
    for repair in REPAIRS:
        affected = [sample for sample in evidence.generated if _shows(repair, sample)]
        if affected:
            yield _found(evidence, repair, affected)


def _shows(repair: Repair, sample: SampleFacts) -> bool:
    if repair.name == "next question" and sample.missed is Where.BEFORE_NEXT_QUESTION:
        return False  # told by the detector of answers that were not extracted
    return repair.name in sample.altered


def _found(evidence: Evidence, repair: Repair, affected: Sequence[SampleFacts]) -> Found:
    generated = evidence.generated
    measured = [sample for sample in affected if sample.repaired]
    is_measured = 2 * len(measured) > len(affected)
    words = f"{percent(len(affected), len(generated))} answers {repair.seen}"
    if is_measured:
        scores = [regained(repair.name, sample) + (sample.score or 0.0) for sample in measured]
        words += (
            f"; without it they score {sum(scores) / len(scores):.2f} in place of {mean_score(measured):.2f}, by the "
            "task's own filter and metric"
        )
    else:
        words += f"; they score {mean_score(affected):.2f}"
    found = judge(
        evidence,
        Suspicion(
            cause=repair.cause,
            evidence=words,
            advice=repair.advice,
            affected=affected,
            of=len(generated),
            confidence=Confidence.CERTAIN if is_measured else Confidence.LIKELY,
            is_measured=is_measured,
            repaired_to=(lambda sample: (sample.score or 0.0) + regained(repair.name, sample)) if is_measured else None,
        ),
    )
    least = _SHARE if is_measured else _SHARE_UNMEASURED
    if evidence.baseline is not None and evidence.baseline.has_facts:
        least = _BEYOND_BASELINE
    is_unusual = exceeds_baseline(evidence, functools.partial(_shows, repair), generated, least=least)
    if is_unusual and (is_measured or not is_harmless(evidence, affected)):
        return found
    return as_remark(found)


def regained(name: str, sample: SampleFacts) -> float:
    """What a repair adds to a sample's score, after those before it; 0 if that was not measured."""
    if not sample.repaired or name not in sample.altered:
        return 0.0
    place = sample.altered.index(name)
    return sample.repaired[place] - (sample.repaired[place - 1] if place else sample.score or 0.0)
