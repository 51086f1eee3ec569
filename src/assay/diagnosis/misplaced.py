"""Detects good answers to other questions: swapped between prompts, the same to all, or held against other targets."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import sqrt
from typing import TYPE_CHECKING

from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Confidence
from assay.diagnosis.judging import Found, Suspicion, exceeds_baseline, judge, judge_all, mean_score, percent
from assay.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts

_NEIGHBOURS = (1, -1, 2, -2, 3, -3, 4, -4, 8, -8)
"""By how many documents an answer may be displaced: by one, or by a batch."""
_FEWEST = 10
_FITTING = 0.5
"""Least share of the changed answers that a neighbour's answer in the baseline fits."""
_DEVIATIONS = 6.0
"""By how many standard deviations the count must exceed the expected one."""
_EXCESS = 0.15
"""Least share of all samples by which an answer is given more often than it is right."""
_WITH_GOLD = 0.9
"""Share of the samples whose right answer must be known."""
_FEWEST_WORDS = 4
_REPEATED = 0.05
"""Least share of all samples with one and the same sentence."""
_RIGHT = 0.2
"""A sentence that is right for a greater share of them is an answer."""


def swapped(evidence: Evidence) -> Iterator[Found]:
    """Answers that are the baseline's to a neighbouring document."""
    changed: int = 0
    fitting: list[SampleFacts] = []
    for ordered in _orders(evidence):
        count, found = _displaced(ordered)
        if len(found) > len(fitting):
            changed, fitting = count, found
    if len(fitting) < _FEWEST or len(fitting) < _FITTING * changed:
        return
    yield judge(
        evidence,
        Suspicion(
            cause=Cause.SWAPPED,
            evidence=f"{percent(len(fitting), changed)} answers that changed are what the baseline answered to a "
            "neighbouring document",
            advice="look for a proxy, cache or batch that returns answers to the wrong requests; --concurrency 1 tells",
            affected=fitting,
            of=len(evidence.generated),
            confidence=Confidence.LIKELY,
        ),
    )


def _orders(evidence: Evidence) -> Iterator[list[tuple[SampleFacts, SampleFacts]]]:
    """The samples with their twins, by number within their tasks, and in the order in which their answers came."""
    pairs = [(sample, twin.facts) for sample, twin in evidence.pairs if sample.is_generated and twin.facts is not None]
    yield sorted(pairs, key=lambda pair: pair[0].place)
    yield sorted((pair for pair in pairs if pair[0].time is not None), key=lambda pair: pair[0].time or 0.0)


def _displaced(ordered: Sequence[tuple[SampleFacts, SampleFacts]]) -> tuple[int, list[SampleFacts]]:
    """How many answers changed, and those that fit another place, always as far away; none if chance may do that."""
    before = [twin.extracted for _, twin in ordered]
    changed = [
        (place, sample)
        for place, (sample, twin) in enumerate(ordered)
        if sample.extracted != twin.extracted and _is_read(sample)
    ]
    usual = Counter(before)
    expected = sum(usual[sample.extracted] for _, sample in changed) / max(1, len(before))
    by_distance = (
        [sample for place, sample in changed if before[(place + by) % len(before)] == sample.extracted]
        for by in _NEIGHBOURS
    )
    fitting = max(by_distance, key=len)
    is_chance = len(fitting) <= expected + _DEVIATIONS * sqrt(max(1.0, expected))
    return len(changed), [] if is_chance else fitting


def same_answer(evidence: Evidence) -> Iterator[Found]:
    """One answer that is given to far more documents than it is right for, or one sentence given to many."""
    if not evidence.compares_answers:
        return  # programs may well be the same where they are wrong
    generated = evidence.generated
    wanted = Counter(_key(sample.gold) for sample in generated if sample.gold)
    said = Counter(_key(sample.extracted) for sample in generated if _is_read(sample))
    answer, times = said.most_common(1)[0] if said else ("", 0)
    affected = [sample for sample in generated if _is_read(sample) and _key(sample.extracted) == answer]
    share = max(wanted[answer], 1) / max(1, len(generated))
    enough = max(_FEWEST, _EXCESS * len(generated), _DEVIATIONS * sqrt(len(generated) * share * max(0.0, 1 - share)))
    is_known = wanted.total() >= _WITH_GOLD * len(generated)
    is_new = exceeds_baseline(evidence, lambda each: _key(each.extracted) == answer, generated, least=_EXCESS)
    if answer and is_known and is_new and times - wanted[answer] >= enough:
        yield _same(evidence, answer, affected, wanted[answer])
    else:
        yield from _repeated_sentence(evidence)


def _repeated_sentence(evidence: Evidence) -> Iterator[Found]:
    groups: dict[int, list[SampleFacts]] = defaultdict(list)
    for sample in evidence.generated:
        if sample.shape is not None and sample.shape.words >= _FEWEST_WORDS and not sample.signs:
            groups[sample.shape.checksum].append(sample)
    canned = [each for each in groups.values() if len(each) >= _FEWEST and mean_score(each) <= _RIGHT]
    affected = [sample for each in canned for sample in each]
    texts = frozenset(sample.shape.checksum for sample in affected if sample.shape is not None)
    if texts and exceeds_baseline(evidence, _has_one_of(texts), evidence.generated, least=_REPEATED):
        openings = dict.fromkeys(f"{sample.shape.opening}…" for sample in affected if sample.shape is not None)
        yield _same(evidence, " or ".join(list(openings)[:3]), affected, None)


def _has_one_of(texts: frozenset[int]) -> Callable[[SampleFacts], bool]:
    return lambda sample: sample.shape is not None and sample.shape.checksum in texts


def _same(evidence: Evidence, answer: str, affected: Sequence[SampleFacts], wanted: int | None) -> Found:
    words = f"{percent(len(affected), len(evidence.generated))} answers are {answer!r}"
    words += f", which is right for {wanted}" if wanted is not None else ", word for word"
    suspicion = Suspicion(
        cause=Cause.SAME_ANSWER,
        evidence=f"{words}; they score {mean_score(affected):.2f}",
        advice="look at one such request by hand: whether the question reaches the model (template, cut input, a cache "
        "or a filter that answers in its place)",
        affected=affected,
        of=len(evidence.generated),
        confidence=Confidence.LIKELY,
    )
    return judge(evidence, suspicion)


def _is_read(sample: SampleFacts) -> bool:
    return sample.outcome is Outcome.ANSWERED and bool(sample.extracted) and not sample.signs


def _key(answer: str) -> str:
    return answer.strip(" ().").casefold()


def targets_changed(evidence: Evidence) -> Iterator[Found]:
    """The baseline's documents with other right answers than there."""
    before = {} if evidence.baseline is None else evidence.baseline.targets
    changed = [
        (sample, before[sample.doc_hash][1])
        for sample in evidence.scored
        if sample.doc_hash in before and before[sample.doc_hash][0] != sample.target_hash
    ]
    if not changed:
        return
    words = f"{percent(len(changed), len(evidence.scored))} documents have another right answer than in the baseline"
    known = [(sample.gold, old) for sample, old in changed if sample.gold and old]
    suspicion = Suspicion(
        cause=Cause.DATA_CHANGED,
        evidence=words + (f", {known[0][0]!r} for {known[0][1]!r}" if known else ""),
        advice="use the baseline's data and task files, or make a new baseline; the answers themselves may be as good",
        affected=[sample for sample, _ in changed],
        of=len(evidence.scored),
        confidence=Confidence.CERTAIN,
    )
    yield (judge_all if len(changed) == len(evidence.scored) else judge)(evidence, suspicion)
