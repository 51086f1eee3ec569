"""Divides a loss among causes: each sample's gain belongs to the first cause that it shows, upstream before downstream.

Causes come in the order in which an answer comes to be: the server, the request and its template, reasoning, the text's
end, its characters, extraction, data, and last the model. So what a cause only passes on is not its own.
"""

from __future__ import annotations

from math import fsum, sqrt
from typing import TYPE_CHECKING

from assay.diagnosis.causes import TITLES, Cause
from assay.diagnosis.findings import CauseShare, Waterfall
from assay.stats.intervals import t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.judging import Found

_STAGES: tuple[frozenset[Cause], ...] = (
    frozenset({Cause.SERVER_FAILURES, Cause.SCORER_FAILURES, Cause.ONE_ENDPOINT}),
    frozenset({Cause.INPUT_CUT}),
    frozenset(
        {
            Cause.WRONG_MODEL,
            Cause.CHAT_TEMPLATE_MISSING,
            Cause.CHAT_TEMPLATE_DOUBLED,
            Cause.BOS_DOUBLED,
            Cause.BOS_MISSING,
            Cause.SYSTEM_PROMPT_IGNORED,
            Cause.TOKENIZER_CHANGED,
            Cause.SWAPPED,
        }
    ),
    frozenset({Cause.REASONING_LEAKED, Cause.ANSWER_IN_REASONING, Cause.STOPPED_IN_REASONING}),
    frozenset({Cause.TRUNCATED, Cause.STOPPED_EARLY, Cause.EMPTY, Cause.PROMPT_ECHOED}),
    frozenset({Cause.TEXT_ALTERED}),
    frozenset({Cause.HARNESS_CHANGED}),
    frozenset({Cause.RUN_ON, Cause.EXTRACTION_MISSED}),
    frozenset(
        {
            Cause.TASK_CHANGED,
            Cause.PROMPTS_CHANGED,
            Cause.DATA_CHANGED,
            Cause.LM_EVAL_CHANGED,
            Cause.BASELINE_PARTIAL,
            Cause.NOT_GREEDY,
        }
    ),
    frozenset({Cause.REPETITIVE, Cause.GIBBERISH, Cause.WRONG_LANGUAGE, Cause.REFUSED, Cause.SAME_ANSWER}),
    frozenset({Cause.NOT_READ, Cause.OTHER_FORM}),
    frozenset({Cause.ONE_TIME_SPAN, Cause.ONE_TASK, Cause.ONE_LENGTH_BAND}),
    frozenset({Cause.CHANCE_LEVEL, Cause.BELOW_CHANCE, Cause.UNEXPLAINED, Cause.ANSWERS_WORSE}),
)
_STAGE = {cause: stage for stage, causes in enumerate(_STAGES) for cause in causes}


def waterfall_of(evidence: Evidence, found: Sequence[Found]) -> Waterfall | None:
    """The shares of the causes; None without a score or a loss."""
    if evidence.score is None or not evidence.loss.is_real:
        return None
    shares = tuple(_shares(evidence, found))
    target = evidence.score + evidence.loss.size
    return Waterfall(
        score=evidence.score,
        shares=shares,
        unexplained=target - evidence.score - fsum(share.gain for share in shares),
        target=target,
        target_is=evidence.loss.against,
    )


def own_gains(evidence: Evidence, found: Sequence[Found]) -> list[dict[tuple[str, int], float]]:
    """For each finding, by sample, the score that it regains beyond the causes upstream of it.

    Findings that are no causes regain nothing.
    """
    reached: dict[tuple[str, int], float] = {}
    scores = {sample.place: sample.score or 0.0 for sample in evidence.scored}
    gains: list[dict[tuple[str, int], float]] = [{} for _ in found]
    order = sorted(range(len(found)), key=lambda place: _STAGE[found[place].finding.cause])
    for number in order:
        if not found[number].finding.is_cause:
            continue
        for place, value in found[number].repaired.items():
            before = reached.get(place, scores.get(place, 0.0))
            if value > before:
                gains[number][place] = value - before
                reached[place] = value
    return gains


def _shares(evidence: Evidence, found: Sequence[Found]) -> Iterator[CauseShare]:
    gains = own_gains(evidence, found)
    for number in sorted(range(len(found)), key=lambda place: _STAGE[found[place].finding.cause]):
        finding = found[number].finding
        if not finding.is_cause or not gains[number]:
            continue
        interval = _interval(gains[number], len(evidence.scored))
        yield CauseShare(
            cause=finding.cause,
            title=TITLES[finding.cause],
            gain=fsum(gains[number].values()) / len(evidence.scored),
            low=interval[0],
            high=interval[1],
            is_measured=finding.is_measured,
        )


def _interval(gains: Mapping[tuple[str, int], float], samples: int) -> tuple[float, float]:
    """Student's t interval of the mean gain; samples without a gain count as zeros."""
    if samples < 2:
        return 0.0, 1.0
    mean = fsum(gains.values()) / samples
    squares = fsum((gain - mean) ** 2 for gain in gains.values()) + (samples - len(gains)) * mean**2
    half = t_quantile(0.975, samples - 1) * sqrt(squares / (samples - 1) / samples)
    return max(0.0, mean - half), mean + half
