"""Detects causes in what answers say: right answers that were not extracted, loops, gibberish, refusals."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from assay.diagnosis.causes import Cause
from assay.diagnosis.endings import cap_of, is_capped
from assay.diagnosis.extraction import Where
from assay.diagnosis.findings import Confidence
from assay.diagnosis.judging import (
    Found,
    Suspicion,
    as_remark,
    examples_of,
    exceeds_baseline,
    is_harmless,
    judge,
    mean_score,
    percent,
)
from assay.diagnosis.texts import Sign
from assay.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts

_MISSED_SHARE = 0.01
_SIGNS = (
    (
        Sign.REPETITIVE,
        Cause.REPETITIVE,
        0.25,
        "look for broken kernels, KV cache or quantisation, and at the chat template; one request by hand shows it",
    ),
    (
        Sign.GIBBERISH,
        Cause.GIBBERISH,
        0.05,
        "look for broken weights, kernels or a tokenizer that is not the model's; one request by hand shows it",
    ),
    (Sign.WRONG_LANGUAGE, Cause.WRONG_LANGUAGE, 0.1, "look at the system prompt, the chat template and the weights"),
    (Sign.REFUSED, Cause.REFUSED, 0.05, "look at the system prompt and at filters between client and model"),
)
"""Sign, its cause, the least share of answers without a baseline, and what to do."""
_BEYOND_BASELINE = 0.03
_UNREAD_SHARE = 0.5
"""Without a baseline's texts, the least share of answers that the filter finds nothing in."""


def not_extracted(evidence: Evidence) -> Iterator[Found]:
    """Texts with a right answer that the filter missed."""
    yield from _missed(
        evidence,
        Cause.EXTRACTION_MISSED,
        _is_missed,
        "score by a filter that reads this form, or ask for the form that the filter reads (few-shot, chat template)",
    )
    yield from _missed(
        evidence,
        Cause.RUN_ON,
        _is_missed_before_next_question,
        "add a stop string for the next question, use the chat endpoint, or check the end-of-turn token",
    )


def _is_missed(sample: SampleFacts) -> bool:
    return sample.missed is not None and sample.missed is not Where.BEFORE_NEXT_QUESTION


def _is_missed_before_next_question(sample: SampleFacts) -> bool:
    return sample.missed is Where.BEFORE_NEXT_QUESTION


def _missed(evidence: Evidence, cause: Cause, is_missed: Callable[[SampleFacts], bool], advice: str) -> Iterator[Found]:
    generated = evidence.generated
    affected = [sample for sample in generated if is_missed(sample)]
    if not affected:
        return
    where = ", ".join(
        f"{count} {place}" for place, count in Counter(sample.missed for sample in affected).most_common(3) if place
    )
    by_other = sum(sample.other_filter for sample in affected)
    words = f"{percent(len(affected), len(generated))} answers are right and scored as wrong: {where}"
    words += f"; another filter finds {by_other} of them" if by_other else ""
    found = judge(
        evidence,
        Suspicion(
            cause=cause,
            evidence=words,
            advice=advice,
            affected=affected,
            of=len(generated),
            confidence=Confidence.CERTAIN,
            repaired_to=lambda _: 1.0,
            show=lambda sample: f"right answer {sample.missed}; extracted {sample.extracted!r}",
        ),
    )
    yield found if exceeds_baseline(evidence, is_missed, generated, least=_MISSED_SHARE) else as_remark(found)


def not_read(evidence: Evidence) -> Iterator[Found]:
    """Complete answers that the filter finds nothing in, and whose form no other detector knows."""
    generated = evidence.generated
    cap = cap_of(evidence)
    affected = [sample for sample in generated if _is_unread(sample) and not is_capped(sample, cap)]
    least = _BEYOND_BASELINE if evidence.baseline is not None and evidence.baseline.has_facts else _UNREAD_SHARE
    if not affected or not exceeds_baseline(evidence, _is_unread, generated, least=least):
        return
    shown = ", ".join(repr(example.shown) for example in examples_of(affected, _excerpt))
    yield judge(
        evidence,
        Suspicion(
            cause=Cause.NOT_READ,
            evidence=f"{percent(len(affected), len(generated))} answers end by themselves and nothing is extracted "
            f"from them; they end in {shown}",
            advice="compare these endings with the task's filter: change the filter, or ask for the form that it reads",
            affected=affected,
            of=len(generated),
            confidence=Confidence.POSSIBLE,
            show=_excerpt,
        ),
    )


def _is_unread(sample: SampleFacts) -> bool:
    """Whether nothing was extracted, and neither the text nor its place in the reply tells why."""
    return (
        sample.outcome is Outcome.UNEXTRACTED
        and (sample.score or 0.0) < 1
        and sample.is_plain
        and sample.missed is None
        and not sample.is_open_thought
    )


def _excerpt(sample: SampleFacts) -> str:
    return sample.excerpt


def degenerate(evidence: Evidence) -> Iterator[Found]:
    """Loops, gibberish, another language, refusals."""
    generated = evidence.generated
    for sign, cause, share, advice in _SIGNS:
        affected = [sample for sample in generated if sign in sample.signs]
        least = share if evidence.baseline is None or not evidence.baseline.has_facts else _BEYOND_BASELINE
        if not affected:
            continue
        found = judge(
            evidence,
            Suspicion(
                cause=cause,
                evidence=f"{percent(len(affected), len(generated))} answers; they score {mean_score(affected):.2f}",
                advice=advice,
                affected=affected,
                of=len(generated),
                confidence=Confidence.LIKELY,
            ),
        )
        is_unusual = exceeds_baseline(evidence, _shows(sign), generated, least=least)
        yield found if is_unusual and not is_harmless(evidence, affected) else as_remark(found)


def _shows(sign: Sign) -> Callable[[SampleFacts], bool]:
    return lambda sample: sign in sample.signs
