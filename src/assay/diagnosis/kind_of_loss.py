"""Says how sound answers got worse: where the loss lies, and by how much the answers miss."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from assay.diagnosis.extraction import number_in
from assay.stats.multiple import holm
from assay.stats.slices import worse_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.diagnosis.evidence import Evidence
    from assay.diagnosis.facts import SampleFacts

_SIGNIFICANT = 0.01
"""After Holm's correction."""
_FEWEST_NUMBERS = 5
_NEAR = 0.1
"""A number is a near miss if it is off by at most this share of the right one, or by one."""


def kind_of_loss(evidence: Evidence, lost: Sequence[SampleFacts]) -> str:
    """In words: which task, lengths, time or endpoint has most of the loss, or all over; and near misses among it."""
    samples, places = [sample for sample, _ in evidence.pairs], {sample.place for sample in lost}
    parts = list(_parts(samples))
    values = evidence.differences
    p_values = [worse_slice(values, [shows(sample) for sample in samples]) for _, shows in parts]
    worst = [part for part, p_value in zip(parts, holm(p_values), strict=True) if p_value < _SIGNIFICANT]
    where = ", ".join(f"{sum(shows(sample) for sample in lost)} of them {name}" for name, shows in worst[:2])
    near, numbers = _near_misses(evidence, places)
    words = where or "all over the run"
    return words + (f"; {near} of {numbers} wrong numbers are near misses" if numbers >= _FEWEST_NUMBERS else "")


def _parts(samples: Sequence[SampleFacts]) -> Iterator[tuple[str, Callable[[SampleFacts], bool]]]:
    """Parts of the run by name, each with the test whether a sample belongs to it."""
    tasks = Counter(sample.task for sample in samples)
    if len(tasks) > 1:
        for task in tasks:
            yield f"in {task}", _is_of(task)
    middle = median([sample.prompt_characters for sample in samples])
    yield f"with prompts longer than {middle:.0f} characters", lambda sample: sample.prompt_characters > middle
    yield f"with prompts of {middle:.0f} characters at most", lambda sample: sample.prompt_characters <= middle
    times = [sample.time for sample in samples if sample.time is not None]
    if times:
        half = median(times)
        yield "in the run's second half", lambda sample: (sample.time or 0.0) > half
    endpoints = Counter(sample.endpoint for sample in samples if sample.endpoint)
    if len(endpoints) > 1:
        for endpoint in endpoints:
            yield f"from {endpoint}", _came_from(endpoint)


def _is_of(task: str) -> Callable[[SampleFacts], bool]:
    return lambda sample: sample.task == task


def _came_from(endpoint: str) -> Callable[[SampleFacts], bool]:
    return lambda sample: sample.endpoint == endpoint


def _near_misses(evidence: Evidence, places: set[tuple[str, int]]) -> tuple[int, int]:
    """How many of the lost answers that should be numbers miss narrowly, and how many there are."""
    near = numbers = 0
    for sample, twin in evidence.pairs:
        if sample.place not in places or twin.facts is None or (twin.score or 0.0) < 1:
            continue
        wanted, got = number_in(twin.facts.extracted), number_in(sample.extracted)
        if wanted is not None and got is not None:
            numbers += 1
            near += abs(got - wanted) <= max(1.0, _NEAR * abs(wanted))
    return near, numbers
