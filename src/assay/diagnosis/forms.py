"""Detects answers that lost their score and look otherwise than the baseline's: no detector needs to know the form."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Confidence
from assay.diagnosis.judging import Found, Suspicion, judge, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts

_FEWEST = 5
_NEW = 0.1
"""A mark or opening is new if the baseline's answers show it at most this often for each time that these do."""
_OF_LOST = 0.3
"""Least share of the lost answers that a new mark or opening stands in."""
_SPARED = 0.5
"""Answers with it must score less than this share of what the baseline's to the same documents do."""
_FEWEST_LETTERS = 4
"""Letters of an opening that tells something."""
_LONGER = 1.8
_SHORTER = 0.5


class _Form(NamedTuple):
    words: str
    shows: Callable[[SampleFacts], bool]


def other_form(evidence: Evidence, explained: frozenset[tuple[str, int]]) -> Iterator[Found]:
    """Lost answers that share a mark, an opening or a length which the baseline's answers do not have.

    Args:
        evidence: the run and its baseline.
        explained: samples that another cause accounts for.
    """
    lost = [
        sample
        for sample, twin in evidence.pairs
        if sample.shape is not None
        and twin.facts is not None
        and sample.place not in explained
        and (sample.score or 0.0) < (twin.score or 0.0)
    ]
    form = next(_forms(evidence, lost), None)
    if form is None:
        return
    affected = [each for each in evidence.generated if form.shows(each) and each.place not in explained]
    found = judge(
        evidence,
        Suspicion(
            cause=Cause.OTHER_FORM,
            evidence=f"{percent(len(affected), len(evidence.generated))} answers {form.words}, unlike the baseline's",
            advice="read three of them beside the baseline's ('assay compare'); one request by hand shows whether the "
            "server or the model writes them so",
            affected=affected,
            of=len(evidence.generated),
            confidence=Confidence.LIKELY,
            show=lambda sample: "" if sample.shape is None else sample.shape.opening,
        ),
    )
    yield found._replace(finding=msgspec.structs.replace(found.finding, score_without=None))


def _forms(evidence: Evidence, lost: Sequence[SampleFacts]) -> Iterator[_Form]:
    if len(lost) < _FEWEST:
        return
    marks = Counter(mark for sample in lost for mark in (sample.shape.marks if sample.shape else ""))
    openings = Counter(sample.shape.opening for sample in lost if sample.shape)
    for mark, times in marks.most_common():
        form = _Form(f"contain {mark!r}", _has_mark(mark))
        if times >= _OF_LOST * len(lost) and _is_new(evidence, form):
            yield form
    new = {
        opening
        for opening, times in openings.items()
        if times >= _FEWEST
        and sum(map(str.isalpha, opening)) >= _FEWEST_LETTERS
        and _is_new(evidence, _Form("", _begins_with(frozenset({opening}))))
    }
    if sum(openings[opening] for opening in new) >= _OF_LOST * len(lost):
        yield _Form(f"begin with {', '.join(map(repr, sorted(new)[:3]))}", _begins_with(frozenset(new)))
    ratios = {sample.place: _length_ratio(evidence, sample) for sample in lost}
    usual = median(ratios.values())
    if usual >= _LONGER or usual <= _SHORTER:
        is_longer = usual > 1
        odd = {place for place, ratio in ratios.items() if (ratio >= _LONGER if is_longer else ratio <= _SHORTER)}
        words = f"are {'longer' if is_longer else 'shorter'}, {usual:.1f} times as long (median)"
        yield _Form(words, lambda sample: sample.place in odd)


def _has_mark(mark: str) -> Callable[[SampleFacts], bool]:
    return lambda sample: sample.shape is not None and mark in sample.shape.marks


def _begins_with(openings: frozenset[str]) -> Callable[[SampleFacts], bool]:
    return lambda sample: sample.shape is not None and sample.shape.opening in openings


def _is_new(evidence: Evidence, form: _Form) -> bool:
    """Whether the answers of that form score badly, and the baseline has next to none."""
    pairs = [(sample, twin) for sample, twin in evidence.pairs if form.shows(sample)]
    before = sum(twin.facts is not None and form.shows(twin.facts) for _, twin in evidence.pairs)
    scored = sum(sample.score or 0.0 for sample, _ in pairs)
    reached = sum(twin.score or 0.0 for _, twin in pairs)
    return len(pairs) >= _FEWEST and before <= _NEW * len(pairs) and scored <= _SPARED * reached


def _length_ratio(evidence: Evidence, sample: SampleFacts) -> float:
    twin = evidence.twin_facts(sample)
    return 1.0 if twin is None else (sample.characters + 1) / (twin.characters + 1)
