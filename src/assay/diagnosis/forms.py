"""Detects answers that lost their score and look otherwise than the baseline's: no detector needs to know the form."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Confidence
from assay.diagnosis.judging import Found, Suspicion, judge, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts
    from assay.diagnosis.shapes import Shape

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


class _Tally(msgspec.Struct):
    """How often a mark or an opening occurs, and what the answers with it score."""

    now: int = 0
    before: int = 0
    lost: int = 0
    scored: float = 0.0
    reached: float = 0.0
    """What the baseline's answers to the same documents score."""

    @property
    def is_new(self) -> bool:
        """Whether the answers with it score badly, and the baseline has next to none."""
        return self.now >= _FEWEST and self.before <= _NEW * self.now and self.scored <= _SPARED * self.reached


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
    places = {sample.place for sample in lost}
    marks = _tallies(evidence, places, lambda shape: shape.marks)
    for mark, tally in sorted(marks.items(), key=lambda each: each[1].lost, reverse=True):
        if tally.lost >= _OF_LOST * len(lost) and tally.is_new:
            yield _Form(f"contain {mark!r}", _has_mark(mark))
    openings = _tallies(evidence, places, lambda shape: (shape.opening,))
    new = {each: tally for each, tally in openings.items() if tally.is_new and _tells_something(each)}
    if sum(tally.lost for tally in new.values()) >= _OF_LOST * len(lost):
        yield _Form(f"begin with {', '.join(map(repr, sorted(new)[:3]))}", _begins_with(frozenset(new)))
    if not evidence.compares_answers:
        return  # wrong programs and texts that break an instruction may well be shorter or longer by nature
    ratios = {sample.place: _length_ratio(evidence, sample) for sample in lost}
    usual = median(ratios.values())
    if usual >= _LONGER or usual <= _SHORTER:
        is_longer = usual > 1
        odd = {place for place, ratio in ratios.items() if (ratio >= _LONGER if is_longer else ratio <= _SHORTER)}
        words = f"are {'longer' if is_longer else 'shorter'}, {usual:.1f} times as long (median)"
        yield _Form(words, lambda sample: sample.place in odd)


def _tallies(
    evidence: Evidence, lost: Collection[tuple[str, int]], parts_of: Callable[[Shape], Iterable[str]]
) -> dict[str, _Tally]:
    """By mark or opening, its tally."""
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    for sample, twin in evidence.pairs:
        for part in parts_of(sample.shape) if sample.shape is not None else ():
            tally = tallies[part]
            tally.now += 1
            tally.lost += sample.place in lost
            tally.scored += sample.score or 0.0
            tally.reached += twin.score or 0.0
        if twin.facts is not None and twin.facts.shape is not None:
            for part in parts_of(twin.facts.shape):
                tallies[part].before += 1
    return tallies


def _tells_something(opening: str) -> bool:
    return sum(map(str.isalpha, opening)) >= _FEWEST_LETTERS


def _has_mark(mark: str) -> Callable[[SampleFacts], bool]:
    return lambda sample: sample.shape is not None and mark in sample.shape.marks


def _begins_with(openings: frozenset[str]) -> Callable[[SampleFacts], bool]:
    return lambda sample: sample.shape is not None and sample.shape.opening in openings


def _length_ratio(evidence: Evidence, sample: SampleFacts) -> float:
    twin = evidence.twin_facts(sample)
    return 1.0 if twin is None else (sample.characters + 1) / (twin.characters + 1)
