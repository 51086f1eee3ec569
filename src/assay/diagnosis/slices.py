"""Detects a loss in one slice of the samples: an endpoint, a stretch of time, a task or a length of prompts.

Of time, both tenths of the run and everything since a change point are slices: a server may recover, or stay worse.
The p-values are corrected for all slices that are tested (Holm). Tasks and lengths differ in difficulty by nature, so
they are tested only against a baseline, document by document.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from assay._util.text import clock
from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Confidence, LossReference
from assay.diagnosis.judging import Found, Suspicion, as_remark, judge, mean_score, percent, share_of_loss
from assay.stats.multiple import holm
from assay.stats.slices import worse_slice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts

_SIGNIFICANT = 0.001
"""After the correction."""
_WORSE_BY = 0.1
"""Least difference in mean score between a slice and the rest."""
_FEWEST = 20
"""Least number of samples in a slice, and outside it."""
_LARGEST = 0.6
"""Greatest share of all samples in a slice."""
_CARRIES = 0.5
"""Least share of the loss against a baseline."""
_BREAKDOWN = 0.25
"""Without a baseline, a stretch of time is a cause only if it scores at most this share of what the rest does."""
_LARGEST_REST = 0.9
"""The same for a stretch that lasts until the end of the run."""
_SPANS = 10
_CHANGE_POINTS = 20
"""Into how many equal parts change points divide the run."""
_BANDS = 4
_ADVICE = {
    Cause.ONE_ENDPOINT: "take it out of the run, and compare its weights, version and hardware with the others'",
    Cause.ONE_TIME_SPAN: "look into the server's log and load at that time; run the same again",
    Cause.ONE_TASK: "look at this task's flipped answers ('assay compare') before the model as a whole",
    Cause.ONE_LENGTH_BAND: "look for prompts that are cut off, a context limit, or long-context kernels and caches",
}


class _Slice(NamedTuple):
    cause: Cause
    name: str
    samples: Sequence[SampleFacts]
    lasts: bool = False
    """A stretch of time until the end of the run."""

    @property
    def places(self) -> frozenset[tuple[str, int]]:
        """Task and document of its samples; not stored, because those of all slices together are large."""
        return frozenset(sample.place for sample in self.samples)


def slices(evidence: Evidence) -> Iterator[Found]:
    """Slices that score significantly worse than the rest."""
    samples, values = _compared(evidence)
    looked_at = [
        part for part in _slices_of(samples, evidence) if _FEWEST <= len(part.samples) <= len(samples) - _FEWEST
    ]
    if not looked_at:
        return
    number = {task: number for number, task in enumerate(sorted({sample.task for sample in samples}))}
    tasks = [number[sample.task] for sample in samples]
    p_values = [_p_value(part, samples, values, tasks) for part in looked_at]
    tested = holm(p_values)
    worse = [part for part, p_value in zip(looked_at, tested, strict=True) if p_value < _SIGNIFICANT]
    by_size = {id(part): (p_value, -len(part.samples)) for part, p_value in zip(looked_at, p_values, strict=True)}
    for cause, confidence in (
        (Cause.ONE_ENDPOINT, Confidence.CERTAIN),
        (Cause.ONE_TIME_SPAN, Confidence.LIKELY),
        (Cause.ONE_LENGTH_BAND, Confidence.LIKELY),
        (Cause.ONE_TASK, Confidence.LIKELY),
    ):
        ours = [part for part in worse if part.cause is cause]
        if cause is Cause.ONE_TIME_SPAN and ours:
            ours = _stretch(ours, min(ours, key=lambda part: by_size[id(part)]))
        if ours:
            yield from _found(evidence, cause, ours, confidence, len(looked_at))


def _stretch(worse: Sequence[_Slice], likeliest: _Slice) -> list[_Slice]:
    """All that lasts since the likeliest change point, or the bad tenths if one of them is likelier."""
    return [likeliest] if likeliest.lasts else [part for part in worse if not part.lasts]


def _compared(evidence: Evidence) -> tuple[list[SampleFacts], list[float]]:
    """The samples, and the values to compare: differences from the baseline, or scores."""
    if evidence.loss.against is LossReference.BASELINE:
        return [sample for sample, _ in evidence.pairs], evidence.differences
    return evidence.scored, [sample.score or 0.0 for sample in evidence.scored]


def _slices_of(samples: Sequence[SampleFacts], evidence: Evidence) -> Iterator[_Slice]:
    endpoints = Counter(sample.endpoint for sample in samples if sample.endpoint)
    if len(endpoints) > 1:
        for endpoint in endpoints:
            yield _Slice(Cause.ONE_ENDPOINT, endpoint, [each for each in samples if each.endpoint == endpoint])
    timed = sorted((sample for sample in samples if sample.time is not None), key=lambda each: each.time or 0.0)
    for part in _parts(timed, _SPANS):
        yield _Slice(Cause.ONE_TIME_SPAN, "", part)
    for number in range(1, _CHANGE_POINTS):
        rest = timed[number * len(timed) // _CHANGE_POINTS :]
        yield _Slice(Cause.ONE_TIME_SPAN, "", rest, lasts=True)
    if evidence.loss.against is not LossReference.BASELINE:
        return
    tasks = dict.fromkeys(sample.task for sample in samples)
    if len(tasks) > 1:
        for task in tasks:
            yield _Slice(Cause.ONE_TASK, task, [sample for sample in samples if sample.task == task])
    by_length = sorted(samples, key=lambda sample: sample.prompt_tokens or sample.prompt_characters)
    for part in _parts(by_length, _BANDS):
        first, last = (part[end].prompt_characters for end in (0, -1))
        yield _Slice(Cause.ONE_LENGTH_BAND, f"prompts of {first} to {last} characters", part)


def _parts(ordered: Sequence[SampleFacts], count: int) -> Iterator[Sequence[SampleFacts]]:
    for number in range(count):
        part = ordered[number * len(ordered) // count : (number + 1) * len(ordered) // count]
        if part:
            yield part


def _p_value(part: _Slice, samples: Sequence[SampleFacts], values: Sequence[float], tasks: Sequence[int]) -> float:
    members = set(map(id, part.samples))
    inside = [id(sample) in members for sample in samples]
    return worse_slice(values, inside, None if part.cause is Cause.ONE_TASK else tasks)


def _found(
    evidence: Evidence, cause: Cause, parts: Sequence[_Slice], confidence: Confidence, looked_at: int
) -> Iterator[Found]:
    places = frozenset(place for part in parts for place in part.places)
    inside = [sample for sample in evidence.scored if sample.place in places]
    outside = [sample for sample in evidence.scored if sample.place not in places]
    lasts = any(part.lasts for part in parts)
    if len(inside) > (_LARGEST_REST if lasts else _LARGEST) * len(evidence.scored) or not outside:
        return
    ours, others = mean_score(inside), mean_score(outside)
    words = f"{_named(cause, parts, inside)}: {percent(len(inside), len(evidence.scored))} samples score {ours:.2f}, "
    words += f"the others {others:.2f} (of {looked_at} slices looked at)"
    if cause is Cause.ONE_TASK and _is_one_stretch(inside, outside):
        words += f"; asked one after another, {_named(Cause.ONE_TIME_SPAN, (), inside)}: the time may be the reason"
    found = judge(
        evidence,
        Suspicion(
            cause=cause,
            evidence=words,
            advice=_ADVICE[cause],
            affected=inside,
            of=len(evidence.scored),
            confidence=confidence,
        ),
    )
    if evidence.loss.against is LossReference.BASELINE:
        carries = share_of_loss(evidence, found.finding.explains or 0.0) >= _CARRIES
        is_much = _mean_difference(evidence, places) <= -_WORSE_BY
    else:
        # Documents may be asked in order of difficulty, so only a breakdown is evidence against a stretch of time.
        carries = cause is not Cause.ONE_TIME_SPAN or ours <= _BREAKDOWN * others
        is_much = others - ours >= _WORSE_BY
    if not is_much:
        return
    if cause in (Cause.ONE_TASK, Cause.ONE_LENGTH_BAND):  # they tell where the loss is, not why
        finding = msgspec.structs.replace(found.finding, weight=0.75 * found.finding.weight)
        found = found._replace(finding=finding)
    yield found if carries else as_remark(found)


def _is_one_stretch(inside: Sequence[SampleFacts], outside: Sequence[SampleFacts]) -> bool:
    """Whether no other sample was answered between the first and the last of these."""
    times = [sample.time for sample in inside if sample.time is not None]
    first, last = min(times, default=0.0), max(times, default=0.0)
    return bool(times) and not any(first < (sample.time or 0.0) < last for sample in outside)


def _mean_difference(evidence: Evidence, places: frozenset[tuple[str, int]]) -> float:
    inside: list[float] = []
    outside: list[float] = []
    for (sample, _), difference in zip(evidence.pairs, evidence.differences, strict=True):
        (inside if sample.place in places else outside).append(difference)
    return sum(inside) / max(1, len(inside)) - sum(outside) / max(1, len(outside))


def _named(cause: Cause, parts: Sequence[_Slice], inside: Sequence[SampleFacts]) -> str:
    if cause is Cause.ONE_TIME_SPAN:
        times = [sample.time for sample in inside if sample.time is not None]
        first, last = (clock(moment, "%H:%M:%S", utc=True) for moment in (min(times), max(times)))
        return f"from {first} UTC on" if any(part.lasts for part in parts) else f"from {first} to {last} UTC"
    return ", ".join(part.name for part in parts)
