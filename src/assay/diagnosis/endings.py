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
_SHORT_BESIDE_WHOLE = 0.3
"""A reasoning with less than this share of the characters of the baseline's reasoning and answer was stopped."""
_SHORT_THOUGHT = 80
"""Characters below which even a reasoning that ends with a full stop was stopped."""
_ANSWER_FOUND = 0.3
"""If this share of the reasoning ends with the right answer, the parser put the answer there."""
_STOPPED_SHARE = 0.05
_STOPPED_LENGTH = 0.5
"""An answer is short if it has less than this share of the characters of right answers, or of the baseline's answer."""
_FEWEST_RIGHT = 10
_STOPPED_AT_ONCE = 3
"""Tokens of an answer that begins with a stop string, at most."""
_FEWEST_SAME = 5
_SAME_SHARE = 0.1
"""Least share of answers that are the same few words."""
_FEWEST_LETTERS = 3
"""Of a beginning: numbers alone are answers."""
_CAP = 8
"""Fewest tokens of answers that break off at a common length; shorter ones are often equally long by nature."""
_CAPPED_SHARE = 0.8
"""Least share of the answers that break off that end at the common length."""
_WHOLE = 0.9
"""Least share of the baseline's characters in an answer that is not cut off."""
_OTHER_ENDS = {
    "content_filter": "a filter between client and model removes the answers: switch it off for this run",
    "tool_calls": "the server takes the answers for calls of tools: start it without a tool parser",
    "function_call": "the server takes the answers for calls of functions: start it without a tool parser",
}
"""What to do if an answer without content ended for this reason."""
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
    # Beside a baseline the answers' own losses tell. Alone, long answers may be cut off because they are hard ones.
    is_costly = _knows_lengths(evidence) or not completed or ours <= _TRUNCATED_AGAINST_COMPLETED * others
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
    cap = cap_of(evidence)
    empty = [sample for sample in empty if not is_capped(sample, cap)]
    reasoned = [sample for sample in empty if sample.has_reasoning and not _has_other_end(sample)]
    in_thought = [*reasoned, *[sample for sample in generated if _is_stopped_thought(sample)]]
    answered = sum(sample.answer_in_reasoning for sample in reasoned)
    explained: list[SampleFacts] = []
    if reasoned and answered >= _ANSWER_FOUND * len(reasoned):
        explained = reasoned
        if exceeds_baseline(evidence, _is_empty, generated, least=_EMPTY_SHARE):
            yield judge(evidence, _answered_in_reasoning(generated, reasoned, answered))
    elif 2 * sum(_breaks_off_in_thought(evidence, sample) for sample in in_thought) > len(in_thought):
        explained = reasoned
        if exceeds_baseline(evidence, _is_stopped_in_thought, generated, least=_EMPTY_SHARE):
            yield judge(evidence, _stopped_in_reasoning(generated, in_thought))
    known = {sample.place for sample in explained}
    nothing = [sample for sample in empty if sample.place not in known]
    if nothing and exceeds_baseline(evidence, _is_empty, generated, least=_EMPTY_SHARE):
        yield judge(evidence, _without_anything(generated, nothing))


def _has_other_end(sample: SampleFacts) -> bool:
    return sample.finish_reason in _OTHER_ENDS


def _breaks_off_in_thought(evidence: Evidence, sample: SampleFacts) -> bool:
    if sample.is_unfinished or sample.is_open_thought:
        return True
    if (twin := evidence.twin_facts(sample)) is not None:
        return sample.characters < _SHORT_BESIDE_WHOLE * twin.characters
    return sample.characters < _SHORT_THOUGHT


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
    advice = "look at the server's reasoning parser, stop strings and end-of-text token, with one request by hand"
    if stops and tokens and 0 < median(tokens) <= _STOPPED_AT_ONCE:
        words += f"; stop strings: {', '.join(map(repr, stops))}"
        advice = (
            "the model ends at once, or the answer begins with a stop string: look at the chat template's end, or ask "
            "without that string (--gen-kwargs until=...)"
        )
    return Suspicion(
        cause=Cause.EMPTY,
        evidence=words,
        advice=advice,
        affected=nothing,
        of=len(generated),
        confidence=Confidence.CERTAIN,
    )


def same_beginning(evidence: Evidence) -> Iterator[Found]:
    """Wrong answers that are all the same few words: how every answer begins, up to a stop string."""
    if not evidence.compares_answers:
        return  # programs and free texts may well be the same where they are wrong
    generated = evidence.generated
    counts = Counter(sample.excerpt for sample in generated if _may_be_a_beginning(sample))
    right = {sample.extracted for sample in generated if (sample.score or 0.0) >= 1}
    common = {text for text, count in counts.items() if count >= _FEWEST_SAME and text not in right}
    most = max(_FEWEST_SAME, _SAME_SHARE * len(generated))
    if sum(counts[text] for text in common) < most:
        return

    def is_same(sample: SampleFacts) -> bool:
        return _may_be_a_beginning(sample) and sample.excerpt in common

    if not exceeds_baseline(evidence, is_same, generated, least=_SAME_SHARE):
        return
    affected = [sample for sample in generated if is_same(sample)]
    shown = ", ".join(repr(text) for text, _ in counts.most_common(2) if text in common)
    stops = ", ".join(map(repr, _ordinary_stops(affected)))
    yield judge(
        evidence,
        Suspicion(
            cause=Cause.STOPPED_EARLY,
            evidence=f"{percent(len(affected), len(generated))} answers say only {shown}, and end at a stop string; "
            f"stop strings: {stops}",
            advice="the answer follows that beginning: ask without the stop string (--gen-kwargs until=...), or find "
            "out where the beginning comes from (reasoning without tags, chat template, system prompt)",
            affected=affected,
            of=len(generated),
            confidence=Confidence.LIKELY,
        ),
    )


def _may_be_a_beginning(sample: SampleFacts) -> bool:
    # A whole sentence may as well be all that something other than the model has said: same_answer() tells of it.
    return (
        not sample.score
        and sample.is_unfinished
        and sample.finish_reason != "length"
        and (sum(map(str.isalpha, sample.excerpt)) >= _FEWEST_LETTERS or sample.excerpt.startswith("```"))
        and sample.is_plain
        and sample.missed is None
        and bool(_ordinary_stops([sample]))
    )


def server_cap(evidence: Evidence) -> Iterator[Found]:
    """Answers that break off at one and the same length although the server says that they ended by themselves."""
    cap = cap_of(evidence)
    if cap is None:
        return
    generated = evidence.generated
    affected = [sample for sample in generated if is_capped(sample, cap)]
    asked = max((sample.max_tokens or 0 for sample in affected), default=0)
    words = f"{percent(len(affected), len(generated))} answers break off at exactly {_tokens(cap)}, with finish_reason "
    words += f"{affected[0].finish_reason!r}; they score {mean_score(affected):.2f}"
    yield judge(
        evidence,
        Suspicion(
            cause=Cause.TRUNCATED,
            evidence=words + (f"; {asked} tokens were asked for" if asked else ""),
            advice="look for a limit of the server's own on new tokens, which it reports as finish_reason 'stop'; a "
            "higher max_gen_toks does not help",
            affected=affected,
            of=len(generated),
            confidence=Confidence.LIKELY,
        ),
    )


def cap_of(evidence: Evidence) -> int | None:
    """The number of tokens at which a server breaks answers off without saying so; None if there is none."""
    broken = [
        sample
        for sample in evidence.generated
        if sample.is_unfinished and _ends_silently(sample) and not _is_whole(evidence, sample)
    ]
    lengths = Counter(sample.completion_tokens or 0 for sample in broken)
    if not lengths:
        return None
    cap, times = lengths.most_common(1)[0]
    texts = {sample.shape for sample in broken if sample.completion_tokens == cap}
    usual = evidence.in_baseline(lambda twin: is_capped(twin, cap)) or 0.0
    is_unusual = times / len(evidence.generated) - usual >= _STOPPED_SHARE
    are_many = times >= max(_FEWEST_SAME, _CAPPED_SHARE * len(broken))
    return cap if is_unusual and are_many and (len(texts) >= _FEWEST_SAME or texts == {None}) else None


def is_capped(sample: SampleFacts, cap: int | None) -> bool:
    """Whether an answer without a result ends at that length."""
    return sample.completion_tokens == cap is not None and _ends_silently(sample)


def _ends_silently(sample: SampleFacts) -> bool:
    """Whether an answer without a result ends well before the limit, by itself as the server says."""
    tokens, is_silent = sample.completion_tokens or 0, sample.finish_reason not in ("length", *_OTHER_ENDS)
    is_far_from_limit = sample.max_tokens is None or tokens < _NEAR_LIMIT * sample.max_tokens
    has_result = sample.outcome is Outcome.ANSWERED or sample.missed is not None
    # Another language does not end a text.
    is_plain = sample.signs <= {Sign.WRONG_LANGUAGE}
    return is_silent and tokens >= _CAP and is_far_from_limit and not has_result and is_plain


def _is_whole(evidence: Evidence, sample: SampleFacts) -> bool:
    """Whether the answer is about as long as the baseline's to the same document."""
    twin = evidence.twin_facts(sample)
    return twin is not None and sample.characters >= _WHOLE * twin.characters


def stopped_early(evidence: Evidence) -> Iterator[Found]:
    """Answers that break off without a result and may have contained a stop string."""
    generated = evidence.generated
    right = [sample.characters for sample in generated if (sample.score or 0.0) >= 1]
    short = _STOPPED_LENGTH * median(right) if len(right) >= _FEWEST_RIGHT else 0.0
    cap = cap_of(evidence)

    def breaks_off(sample: SampleFacts) -> bool:
        is_broken = sample.is_unfinished or sample.characters < short or _is_shorter(evidence, sample)
        return _lacks_result(sample) and is_broken and not is_capped(sample, cap)

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
        and sample.is_plain
        and sample.missed is None
        and not sample.is_open_thought
        and bool(_ordinary_stops([sample]))
    )


def _is_as_long(evidence: Evidence, sample: SampleFacts) -> bool:
    """Whether the answer is at least half as long as the baseline's to the same document."""
    twin = evidence.twin_facts(sample)
    return twin is not None and sample.characters > _STOPPED_LENGTH * twin.characters


def _is_shorter(evidence: Evidence, sample: SampleFacts) -> bool:
    """Whether the answer is less than half as long as the baseline's to the same document."""
    twin = evidence.twin_facts(sample)
    return twin is not None and sample.characters < _STOPPED_LENGTH * twin.characters


def _ordinary_stops(samples: Sequence[SampleFacts]) -> list[str]:
    """The stop strings that ordinary text may contain."""
    stops = dict.fromkeys(stop for sample in samples for stop in sample.stops)
    return [stop for stop in stops if len(stop) <= _ORDINARY_STOP and not stop.startswith(("<", "[/"))]
