"""Detects guessing, and answers that are worse than the baseline's for no reason in the harness."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Confidence, LossReference
from assay.diagnosis.forms import other_form
from assay.diagnosis.judging import Found, Suspicion, as_remark, judge, percent, share_of_loss
from assay.diagnosis.kind_of_loss import kind_of_loss
from assay.stats.intervals import wilson
from assay.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts
    from assay.diagnosis.texts import Sign

_FEWEST = 50
_ALWAYS = 0.9
_WEIGHT = 0.9
_WHERE = frozenset({Cause.ONE_TASK, Cause.ONE_LENGTH_BAND, Cause.ONE_TIME_SPAN, Cause.ONE_ENDPOINT})
"""Causes that tell where the loss is, not why."""
_SOUND_SHARE = 0.5
"""Least share of the lost answers that must be sound before the model itself is called worse."""
_GUESSED = "if the model should do better: look at prompts, log-probabilities ('assay probe'), weights"
_READ_WRONG = "guessing would do better, so answers are lost or misread: read some wrong ones beside what was extracted"


def chance_level(evidence: Evidence) -> Iterator[Found]:
    """Multiple-choice scores that guessing would reach or exceed. A small model may do no better than guess."""
    offered = [sample for sample in evidence.scored if sample.choices > 1]
    if len(offered) < _FEWEST:
        return
    chance = sum(1 / sample.choices for sample in offered) / len(offered)
    right = round(sum(sample.score or 0.0 for sample in offered))
    interval = wilson(right, len(offered))
    if interval.low > chance:
        return
    is_below = interval.high < chance
    letters = Counter(sample.extracted for sample in offered if sample.is_generated)
    same = letters.most_common(1)
    words = f"{percent(right, len(offered))} right where guessing gives {chance:.0%}"
    if same and same[0][1] >= _ALWAYS * len(offered):
        words += f"; {same[0][1]} answers are {same[0][0]!r}"
    found = judge(
        evidence,
        Suspicion(
            cause=Cause.BELOW_CHANCE if is_below else Cause.CHANCE_LEVEL,
            evidence=words,
            advice=_READ_WRONG if is_below else _GUESSED,
            affected=offered,
            of=len(evidence.scored),
            confidence=Confidence.POSSIBLE,
        ),
    )
    # It tells that something is wrong, not what.
    found = found._replace(finding=msgspec.structs.replace(found.finding, weight=0.75 * found.finding.weight))
    yield as_remark(found) if evidence.loss.against is LossReference.FULL else found


def answers_worse(evidence: Evidence, causes: Sequence[Found]) -> Iterator[Found]:
    """The loss against the baseline that no other cause accounts for: in form, in sound answers, or unexplained.

    Args:
        evidence: the run and its baseline.
        causes: the causes found in the harness.
    """
    if evidence.loss.against is not LossReference.BASELINE or not evidence.loss.is_real:
        return
    explained = frozenset(place for found in causes for place in found.places)
    told_why = frozenset(place for found in causes if found.finding.cause not in _WHERE for place in found.places)
    forms = [each for each in other_form(evidence, told_why) if each.finding.is_cause]
    yield from forms
    explained |= frozenset(place for found in forms for place in found.places)
    left = [(sample, twin) for sample, twin in evidence.pairs if sample.place not in explained]
    lost = [sample for sample, twin in left if twin.score is not None and (sample.score or 0.0) < twin.score]
    gained = sum(twin.score is not None and (sample.score or 0.0) > twin.score for sample, twin in left)
    missing = sum((twin.score or 0.0) - (sample.score or 0.0) for sample, twin in left) / len(evidence.pairs)
    if not lost or missing <= 0:
        return
    ours = (evidence.baseline_score or 0.0) - evidence.loss.size
    words = f"{evidence.baseline_score:.3f} -> {ours:.3f} on {len(evidence.pairs)} documents; "
    words += f"{len(lost)} lost, {gained} gained"
    is_rest = bool(causes or forms)
    words += " that nothing above accounts for" if is_rest else f" (p = {evidence.loss_p_value:.1g})"
    sound = [sample for sample in lost if _is_sound(evidence, sample)]
    are_sound = len(sound) >= _SOUND_SHARE * len(lost)
    found = judge(
        evidence,
        Suspicion(
            cause=Cause.ANSWERS_WORSE if are_sound else Cause.UNEXPLAINED,
            evidence=f"{words}; {kind_of_loss(evidence, lost) if are_sound else _in_what(evidence, lost)}",
            advice="the model itself changed: weights, quantisation, kernels; 'assay compare' shows flipped answers"
            if are_sound
            else "read some of the lost answers beside the baseline's: 'assay compare' shows them",
            affected=lost,
            of=len(evidence.pairs),
            confidence=Confidence.LIKELY,
            show=lambda sample: f"now {sample.extracted!r}",
        ),
    )
    share = share_of_loss(evidence, missing)
    yield Found(
        msgspec.structs.replace(found.finding, weight=_WEIGHT * share, score_without=None, score_repaired=None),
        found.places,
    )


def _is_sound(evidence: Evidence, sample: SampleFacts) -> bool:
    """Whether an answer is well-formed, has ended by itself and was read. A log-likelihood always is.

    What the baseline's answer to the same document shows, too, is this model's manner.
    """
    if not sample.is_generated:
        return True
    twin = evidence.twin_facts(sample)
    is_whole = sample.outcome is Outcome.ANSWERED and sample.finish_reason != "length"
    return is_whole and not _new_signs(sample, twin) and sample.missed is None


def _new_signs(sample: SampleFacts, twin: SampleFacts | None) -> frozenset[Sign]:
    return sample.signs if twin is None else sample.signs - twin.signs


def _in_what(evidence: Evidence, lost: Sequence[SampleFacts]) -> str:
    """How many of the lost answers are not sound, by kind."""
    kinds = Counter(
        sample.missed or next(iter(sorted(_new_signs(sample, evidence.twin_facts(sample)))), None) or sample.outcome
        for sample in lost
        if not _is_sound(evidence, sample)
    )
    return "of the lost answers " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(3))
