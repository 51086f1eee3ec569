"""Detects guessing, and answers that are worse than the baseline's for no reason in the harness."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Confidence, LossReference
from assay.diagnosis.judging import Found, Suspicion, as_remark, judge, percent, share_of_loss
from assay.stats.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.diagnosis.evidence import Evidence

_FEWEST = 50
_ALWAYS = 0.9
_WEIGHT = 0.9
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
    yield as_remark(found) if evidence.loss.against is LossReference.FULL else found


def answers_worse(evidence: Evidence, causes: Sequence[Found]) -> Iterator[Found]:
    """The loss against the baseline that no other cause accounts for.

    Args:
        evidence: the run and its baseline.
        causes: the causes found in the harness.
    """
    if evidence.loss.against is not LossReference.BASELINE or not evidence.loss.is_real:
        return
    explained = frozenset(place for found in causes for place in found.places)
    left = [(sample, twin) for sample, twin in evidence.pairs if sample.place not in explained]
    lost = [sample for sample, twin in left if twin.score is not None and (sample.score or 0.0) < twin.score]
    gained = sum(twin.score is not None and (sample.score or 0.0) > twin.score for sample, twin in left)
    missing = sum((twin.score or 0.0) - (sample.score or 0.0) for sample, twin in left) / len(evidence.pairs)
    if not lost or missing <= 0:
        return
    ours = (evidence.baseline_score or 0.0) - evidence.loss.size
    words = f"{evidence.baseline_score:.3f} -> {ours:.3f} on {len(evidence.pairs)} documents; "
    words += f"{len(lost)} lost, {gained} gained"
    words += f" (p = {evidence.loss_p_value:.1g})" if not causes else " that nothing above accounts for"
    found = judge(
        evidence,
        Suspicion(
            cause=Cause.ANSWERS_WORSE,
            evidence=words,
            advice="the model itself changed: weights, quantisation, kernels; 'assay compare' shows flipped answers",
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
