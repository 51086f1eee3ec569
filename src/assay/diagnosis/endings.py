"""Detects causes in how answers end: cut off, stopped, empty, reasoning in the wrong place."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from assay.diagnosis.causes import Cause
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
from assay.diagnosis.texts import Sign
from assay.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts

_TRUNCATED_SHARE = 0.05
_TRUNCATED_AGAINST_COMPLETED = 0.5
"""Truncated answers must score less than this share of what completed ones do; else the limit is not the cause."""
_NEAR_LIMIT = 0.8
_LEAST_LIMIT = 16
"""Least number of tokens to advise: fewer hold no answer."""
_EMPTY_SHARE = 0.02
_ANSWER_FOUND = 0.3
"""If this share of the reasoning ends with the right answer, the parser put the answer there."""
_STOPPED_SHARE = 0.05
_STOPPED_LENGTH = 0.5
"""An answer is short if it has less than this share of the characters of right answers, or of the baseline's answer."""
_FEWEST_RIGHT = 10
_STOPPED_AT_ONCE = 3
"""Tokens of an answer that begins with a stop string, at most."""
_OTHER_ENDS = {
    "content_filter": "a filter between client and model removes the answers: switch it off for this run",
    "tool_calls": "the server takes the answers for calls of tools: start it without a tool parser",
    "function_call": "the server takes the answers for calls of functions: start it without a tool parser",
}
"""What to do if an answer without content ended for this reason."""
_LEAKED_SHARE = 0.05
_ORDINARY_STOP = 12
"""Longest stop string, in characters, that ordinary text may contain, unlike ``<|im_end|>``."""


def truncated(evidence: Evidence) -> Iterator[Found]:
    """Answers that were cut off at the token limit, other than loops and texts that ran on."""
    generated = evidence.generated
    affected = [sample for sample in generated if _is_cut_off(sample)]
    completed = [sample for sample in generated if sample.outcome is not Outcome.TRUNCATED]
    if not exceeds_baseline(evidence, _is_cut_off, generated, least=_TRUNCATED_SHARE):
        return
    ours, others = mean_score(affected), mean_score(completed)
    thinking = sum(sample.has_reasoning and sample.outcome is Outcome.TRUNCATED for sample in affected)
    words = f"{percent(len(affected), len(generated))} answers are cut off at {_limit(affected)}; they score {ours:.2f}"
    words += f", completed ones {others:.2f}" if completed else ""
    words += f"; {thinking} of them come from a model that reasons first" if thinking else ""
    found = judge(
        evidence,
        Suspicion(
            cause=Cause.TRUNCATED,
            evidence=words,
            advice=_advice_on_server_limit(affected)
            or f"raise max_gen_toks (--gen-kwargs max_gen_toks=N): {_advised_limit(evidence, affected, completed)}",
            affected=affected,
            of=len(generated),
            confidence=Confidence.CERTAIN,
            show=lambda sample: f"cut off after {_tokens(sample.completion_tokens or '?')}",
        ),
    )
    is_costly = not completed or ours <= _TRUNCATED_AGAINST_COMPLETED * others
    yield found if is_costly else as_remark(found)


def _is_cut_off(sample: SampleFacts) -> bool:
    # A loop never ends, and a text that continues with the next turn missed its own end: a higher limit helps neither.
    return sample.outcome is Outcome.TRUNCATED and not {Sign.REPETITIVE, Sign.TEMPLATE_MARKERS} & set(sample.signs)


def _limit(affected: Sequence[SampleFacts]) -> str:
    limits = Counter(sample.max_tokens or sample.completion_tokens for sample in affected)
    limit = _server_limit(affected) or limits.most_common(1)[0][0]
    return _tokens(limit) if limit else "the token limit"


def _server_limit(affected: Sequence[SampleFacts]) -> int | None:
    """The median length of answers that end well before the limit in the request; None if most reach it."""
    known = [
        (each.completion_tokens, each.max_tokens) for each in affected if each.completion_tokens and each.max_tokens
    ]
    early = [used for used, asked in known if used < _NEAR_LIMIT * asked]
    return round(median(early)) if 2 * len(early) > len(affected) else None


def _advice_on_server_limit(affected: Sequence[SampleFacts]) -> str | None:
    limit = _server_limit(affected)
    if limit is None:
        return None
    asked = max(sample.max_tokens or 0 for sample in affected)
    return (
        f"the server cuts off after {_tokens(limit)} (median), although {asked} were asked for: raise its own limit on "
        "new tokens or its context length; a higher max_gen_toks does not help"
    )


def _tokens(count: int | str) -> str:
    return "1 token" if count == 1 else f"{count} tokens"


def _advised_limit(evidence: Evidence, affected: Sequence[SampleFacts], completed: Sequence[SampleFacts]) -> str:
    """Advice on the token limit, from the lengths of other answers."""
    twins = [evidence.twin_facts(sample) for sample in affected]
    needed = sorted(
        twin.completion_tokens
        for twin in twins
        if twin is not None and twin.completion_tokens and twin.outcome is not Outcome.TRUNCATED
    )
    if needed:
        return f"in the baseline 95 % of these took at most {needed[int(0.95 * (len(needed) - 1))]}"
    limit = max((sample.completion_tokens or sample.max_tokens or 0 for sample in affected), default=0)
    if limit and not completed:
        return f"no answer was complete; try {max(4 * limit, _LEAST_LIMIT)} or more"
    used = sorted(sample.completion_tokens for sample in completed if sample.completion_tokens)
    if used and used[int(0.95 * (len(used) - 1))] < _NEAR_LIMIT * limit:
        return f"95 % of the completed answers took at most {used[int(0.95 * (len(used) - 1))]}, so try twice {limit}"
    return f"completed answers reach up to the limit, so try at least four times {limit}" if limit else "try four times"


def without_content(evidence: Evidence) -> Iterator[Found]:
    """Answers without content: the answer is in the reasoning, the reasoning was stopped, or there is neither."""
    generated = evidence.generated
    empty = [sample for sample in generated if sample.outcome is Outcome.EMPTY]
    open_thoughts = [sample for sample in generated if _is_stopped_thought(sample)]
    reasoned = [sample for sample in empty if sample.has_reasoning]
    answered = sum(sample.answer_in_reasoning for sample in reasoned)
    if reasoned and answered >= _ANSWER_FOUND * len(reasoned):
        if exceeds_baseline(evidence, _is_empty, generated, least=_EMPTY_SHARE):
            yield judge(evidence, _answered_in_reasoning(generated, reasoned, answered))
    elif exceeds_baseline(evidence, _is_stopped_in_thought, generated, least=_EMPTY_SHARE):
        yield judge(evidence, _stopped_in_reasoning(generated, [*reasoned, *open_thoughts]))
    nothing = [sample for sample in empty if not sample.has_reasoning]
    if nothing and exceeds_baseline(evidence, _is_empty, generated, least=_EMPTY_SHARE):
        yield judge(evidence, _without_anything(generated, nothing))


def _is_empty(sample: SampleFacts) -> bool:
    return sample.outcome is Outcome.EMPTY


def _is_stopped_thought(sample: SampleFacts) -> bool:
    return sample.is_open_thought and sample.outcome is not Outcome.TRUNCATED


def _is_stopped_in_thought(sample: SampleFacts) -> bool:
    return _is_stopped_thought(sample) or (_is_empty(sample) and sample.has_reasoning)


def _answered_in_reasoning(
    generated: Sequence[SampleFacts], reasoned: Sequence[SampleFacts], answered: int
) -> Suspicion:
    return Suspicion(
        cause=Cause.ANSWER_IN_REASONING,
        evidence=f"{percent(len(reasoned), len(generated))} answers have empty content and reasoning beside it; "
        f"{answered} of these reasonings end with the right answer",
        advice="fit the server's reasoning parser to the model (or switch it off), so that the answer becomes content",
        affected=reasoned,
        of=len(generated),
        confidence=Confidence.CERTAIN,
        repaired_to=lambda sample: float(sample.answer_in_reasoning),
    )


def _stopped_in_reasoning(generated: Sequence[SampleFacts], affected: Sequence[SampleFacts]) -> Suspicion:
    stops = ", ".join(map(repr, _ordinary_stops(affected)))
    unfinished = sum(sample.is_unfinished or sample.is_open_thought for sample in affected)
    return Suspicion(
        cause=Cause.STOPPED_IN_REASONING,
        evidence=f"{percent(len(affected), len(generated))} answers end inside the reasoning, before any content, "
        f"and not at the token limit; {unfinished} break off; stop strings: {stops or 'none'}",
        advice="ask without these stop strings (--gen-kwargs until=...), or have the server apply them to content only",
        affected=affected,
        of=len(generated),
        confidence=Confidence.CERTAIN if stops else Confidence.LIKELY,
    )


def _without_anything(generated: Sequence[SampleFacts], nothing: Sequence[SampleFacts]) -> Suspicion:
    tokens = [sample.completion_tokens for sample in nothing if sample.completion_tokens is not None]
    stops = _ordinary_stops(nothing)
    words = f"{percent(len(nothing), len(generated))} answers are empty"
    if tokens:
        words += f", of {_tokens(round(median(tokens)))} (median)"
    reasons = Counter(sample.finish_reason for sample in nothing if sample.finish_reason in _OTHER_ENDS)
    if 2 * reasons.total() > len(nothing):
        ends = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        return Suspicion(
            cause=Cause.EMPTY,
            evidence=f"{words}; finish_reason: {ends}",
            advice=_OTHER_ENDS[reasons.most_common(1)[0][0] or ""],
            affected=nothing,
            of=len(generated),
            confidence=Confidence.CERTAIN,
        )
    if stops and tokens and 0 < median(tokens) <= _STOPPED_AT_ONCE:
        return Suspicion(
            cause=Cause.STOPPED_EARLY,
            evidence=f"{words}; stop strings: {', '.join(map(repr, stops))}",
            advice="the answer begins with a stop string: look at the chat template's end, or ask without that string",
            affected=nothing,
            of=len(generated),
            confidence=Confidence.LIKELY,
        )
    return Suspicion(
        cause=Cause.EMPTY,
        evidence=words,
        advice="look at the server's reasoning parser, stop strings and end-of-text token, with one request by hand",
        affected=nothing,
        of=len(generated),
        confidence=Confidence.CERTAIN,
    )


def stopped_early(evidence: Evidence) -> Iterator[Found]:
    """Answers that break off without a result and may have contained a stop string."""
    generated = evidence.generated
    right = [sample.characters for sample in generated if (sample.score or 0.0) >= 1]
    short = _STOPPED_LENGTH * median(right) if len(right) >= _FEWEST_RIGHT else 0.0

    def breaks_off(sample: SampleFacts) -> bool:
        return _lacks_result(sample) and (sample.is_unfinished or sample.characters < short)

    affected = [sample for sample in generated if breaks_off(sample) and not _is_as_long(evidence, sample)]
    if not affected or not exceeds_baseline(evidence, breaks_off, generated, least=_STOPPED_SHARE):
        return
    stops = ", ".join(map(repr, _ordinary_stops(affected)))
    yield judge(
        evidence,
        Suspicion(
            cause=Cause.STOPPED_EARLY,
            evidence=f"{percent(len(affected), len(generated))} answers break off before a result, not at the token "
            f"limit; stop strings: {stops}",
            advice="ask without the stop string that the text holds (--gen-kwargs until=...)",
            affected=affected,
            of=len(generated),
            confidence=Confidence.LIKELY if short or _knows_lengths(evidence) else Confidence.POSSIBLE,
        ),
    )


def _knows_lengths(evidence: Evidence) -> bool:
    """Whether the baseline tells how long the answers should be."""
    return evidence.baseline is not None and evidence.baseline.has_facts


def _lacks_result(sample: SampleFacts) -> bool:
    return (
        sample.outcome is Outcome.UNEXTRACTED
        and not sample.signs
        and sample.missed is None
        and not sample.is_open_thought
        and bool(_ordinary_stops([sample]))
    )


def _is_as_long(evidence: Evidence, sample: SampleFacts) -> bool:
    """Whether the answer is at least half as long as the baseline's to the same document."""
    twin = evidence.twin_facts(sample)
    return twin is not None and sample.characters > _STOPPED_LENGTH * twin.characters


def _ordinary_stops(samples: Sequence[SampleFacts]) -> list[str]:
    """The stop strings that ordinary text may contain."""
    stops = dict.fromkeys(stop for sample in samples for stop in sample.stops)
    return [stop for stop in stops if len(stop) <= _ORDINARY_STOP and not stop.startswith(("<", "[/"))]


def reasoning_leaked(evidence: Evidence) -> Iterator[Found]:
    """Answers with reasoning tags in the content."""
    generated = evidence.generated
    affected = [sample for sample in generated if _is_leaked(sample)]
    if not exceeds_baseline(evidence, _is_leaked, generated, least=_LEAKED_SHARE):
        return
    found = judge(
        evidence,
        Suspicion(
            cause=Cause.REASONING_LEAKED,
            evidence=f"{percent(len(affected), len(generated))} answers hold tags of reasoning; "
            f"they score {mean_score(affected):.2f}",
            advice="start the server with the model's reasoning parser, so that only the answer is scored",
            affected=affected,
            of=len(generated),
            confidence=Confidence.LIKELY,
        ),
    )
    yield as_remark(found) if is_harmless(evidence, affected) else found


def _is_leaked(sample: SampleFacts) -> bool:
    return Sign.REASONING_TAGS in sample.signs and not sample.is_open_thought and not _is_cut_off(sample)
