"""Compares two runs: what changed, whether chance explains it, and which answers flipped."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

import msgspec

from assay.errors import SpecificationError
from assay.runs.answers import read_answers
from assay.runs.files import read_run
from assay.runs.pairing import Pairing, pair_tasks
from assay.runs.record import AnswerText, RecordedRun, Score, are_same_run, document_means, mean, with_tasks
from assay.stats.multiple import holm
from assay.stats.paired import count_flips, mcnemar, newcombe_interval, paired_difference, sign_flip_test
from assay.stats.strata import stratified_interval
from assay.tasks.repeats import RepeatMetric
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from assay.stats.intervals import Interval


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one task or group in two runs, on the documents that both scored."""

    task: str
    metric: str
    is_group: bool = False
    baseline: float
    candidate: float
    difference: float
    """Candidate minus baseline."""
    interval: Interval | None
    """95 % interval for the difference: Newcombe's for right-or-wrong scores, else from Miller's paired standard
    error; groups combine their tasks' intervals."""
    p_value: float
    """Of this row alone, two-sided: exact McNemar for right-or-wrong scores, else a sign-flip permutation test."""
    p_adjusted: float
    """Adjusted by Holm's method for all rows of its kind: lm-eval's own metrics, or all ``avg@K``, ``pass@k``, …"""
    lost: int
    """Documents whose score got worse."""
    gained: int
    """Documents whose score got better."""
    n: int
    """Documents scored in both runs."""
    failed: int
    """Documents that failed in one of them."""
    higher_is_better: bool


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """One document whose score changed."""

    task: str
    metric: str
    doc_id: int
    change: Literal["lost", "gained"]
    before: AnswerText | None
    after: AnswerText | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate beside its baseline."""

    baseline: str
    candidate: str
    """The file; likewise for ``baseline``."""
    baseline_model: str
    candidate_model: str
    changes: tuple[Change, ...]
    """Groups first, then tasks, each in the baseline's order."""
    flips: tuple[Flip, ...]
    mismatches: dict[str, tuple[str, ...]]
    """By task, what differs besides the answers."""
    remarks: tuple[str, ...]
    """What is not compared, and why."""


class _Paired(msgspec.Struct, frozen=True):
    """One metric's scores of the documents that both runs scored, with their numbers in the candidate."""

    task: str
    before: list[Score]
    after: list[Score]
    doc_ids: list[int]
    failed: int
    higher_is_better: bool


def compare(
    baseline: RecordedRun | str | Path, candidate: RecordedRun | str | Path, *, tasks: Sequence[str] = ()
) -> Comparison:
    """Compare two runs of Assay or lm-eval document by document, for every task, metric and group that both have.

    Args:
        baseline: the earlier run: a results file, a samples file, a baseline, a folder of results (its newest run), or
            the result of :func:`assay.read_run`.
        candidate: the later run, likewise.
        tasks: the tasks and groups to compare; all if empty.

    Raises:
        FileFormatError: a run is missing or damaged.
        SpecificationError: they have no task in common, or one lacks a task of `tasks`.
    """
    baseline, candidate = (with_tasks(_read(run), tasks) for run in (baseline, candidate))
    comparison = compare_rescored(baseline, candidate)
    return msgspec.structs.replace(comparison, remarks=(*_remarks_on_runs(baseline, candidate), *comparison.remarks))


def compare_rescored(baseline: RecordedRun, candidate: RecordedRun) -> Comparison:
    """:func:`compare` without the remarks that only runs with different answers need."""
    common = [name for name in baseline.tasks if name in candidate.tasks]
    if not common:
        raise SpecificationError(
            f"{candidate.source} has no task of {baseline.source}: {', '.join(candidate.tasks) or 'none'} there, "
            f"{', '.join(baseline.tasks) or 'none'} here"
        )
    pairings = {name: pair_tasks(baseline.tasks[name], candidate.tasks[name]) for name in common}
    paired = {(name, key): found for name in common for key, found in _paired(pairings[name]).items()}
    changes = {place: _task_change(place[1], found) for place, found in paired.items()}
    return Comparison(
        baseline=baseline.source,
        candidate=candidate.source,
        baseline_model=baseline.model,
        candidate_model=candidate.model,
        changes=_adjusted([*_group_changes(baseline, candidate, paired, changes), *changes.values()]),
        flips=tuple(flip for (name, key), found in paired.items() for flip in _flips(pairings[name], key, found)),
        mismatches={name: pairing.changes for name, pairing in pairings.items() if pairing.changes},
        remarks=(
            *(f"{name}: {pairing.partial}" for name, pairing in pairings.items() if pairing.partial),
            *_remarks(baseline, candidate, pairings),
        ),
    )


def _read(run: RecordedRun | str | Path) -> RecordedRun:
    return run if isinstance(run, RecordedRun) else read_run(run)


def _paired(pairing: Pairing) -> dict[str, _Paired]:
    found = {}
    for key in pairing.baseline.scores:
        if key not in pairing.candidate.scores:
            continue
        before, after, doc_ids, failed = [], [], [], 0
        for pair, (old, new) in zip(pairing.pairs, pairing.scores(key), strict=True):
            if old is None or new is None:
                failed += 1
                continue
            before.append(old)
            after.append(new)
            doc_ids.append(pair.doc_id)
        if before:
            name, directions = pairing.baseline.name, pairing.baseline.higher_is_better
            found[key] = _Paired(name, before, after, doc_ids, failed, directions.get(key, True))
    return found


def _task_change(key: str, paired: _Paired) -> Change:
    before, after = document_means(paired.before), document_means(paired.after)
    are_flips = _right_or_wrong(paired.before) and _right_or_wrong(paired.after)
    lost, gained = _count(before, after, higher_is_better=paired.higher_is_better)
    p_value = mcnemar(lost, gained) if are_flips else sign_flip_test(_totals(paired))
    return Change(
        task=paired.task,
        metric=key,
        baseline=mean(paired.before),
        candidate=mean(paired.after),
        difference=mean(paired.after) - mean(paired.before),
        interval=newcombe_interval(count_flips(before, after)) if are_flips else _mean_interval(paired),
        p_value=p_value,
        p_adjusted=p_value,
        lost=lost,
        gained=gained,
        n=len(before),
        failed=paired.failed,
        higher_is_better=paired.higher_is_better,
    )


def _group_changes(
    baseline: RecordedRun,
    candidate: RecordedRun,
    paired: Mapping[tuple[str, str], _Paired],
    changes: Mapping[tuple[str, str], Change],
) -> Iterator[Change]:
    for name, group in baseline.groups.items():
        there = candidate.groups[name].weighted_by_size if name in candidate.groups else {}
        for key, here in group.weighted_by_size.items():
            # Equal scores do not show how they were averaged and count as weighted by size; the other run may show it.
            by_size = here and there.get(key, True)
            places = [(task, key) for task in group.tasks]
            if all(place in changes for place in places):
                parts = [changes[place] for place in places]
                weights = [part.n if by_size else 1 for part in parts]
                p_value = _group_p_value([paired[place] for place in places], by_size=by_size)
                yield _group_change(name, parts, weights, p_value)


def _group_change(name: str, parts: Sequence[Change], weights: Sequence[int], p_value: float) -> Change:
    total = sum(weights)

    def weighted(values: Sequence[float]) -> float:
        return sum(weight * value for weight, value in zip(weights, values, strict=True)) / total

    differences = [part.difference for part in parts]
    intervals = [part.interval for part in parts if part.interval is not None]
    return Change(
        task=name,
        metric=parts[0].metric,
        is_group=True,
        baseline=weighted([part.baseline for part in parts]),
        candidate=weighted([part.candidate for part in parts]),
        difference=weighted(differences),
        interval=stratified_interval(differences, intervals, weights) if len(intervals) == len(parts) else None,
        p_value=p_value,
        p_adjusted=p_value,
        lost=sum(part.lost for part in parts),
        gained=sum(part.gained for part in parts),
        n=sum(part.n for part in parts),
        failed=sum(part.failed for part in parts),
        higher_is_better=parts[0].higher_is_better,
    )


def _adjusted(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Adjust each kind of metric for itself: kinds show the same answers, so that together they are no more tests."""
    places: dict[tuple[str, int] | None, list[int]] = defaultdict(list)
    for place, change in enumerate(changes):
        repeated = RepeatMetric.read(MetricKey.read(change.metric).metric)
        places[None if repeated is None else (repeated.kind, repeated.k)].append(place)
    adjusted = list(changes)
    for family in places.values():
        for place, p_value in zip(family, holm([changes[place].p_value for place in family]), strict=True):
            adjusted[place] = msgspec.structs.replace(changes[place], p_adjusted=p_value)
    return tuple(adjusted)


def _group_p_value(parts: Sequence[_Paired], *, by_size: bool) -> float:
    """For the group's aggregate: McNemar's test if every flip counts the same, else the sign-flip test."""
    if by_size and all(_right_or_wrong(part.before) and _right_or_wrong(part.after) for part in parts):
        counts = [_count(document_means(part.before), document_means(part.after)) for part in parts]
        return mcnemar(sum(lost for lost, _ in counts), sum(gained for _, gained in counts))
    shares = [1.0 if by_size else 1 / len(part.before) for part in parts]
    return sign_flip_test([share * total for share, part in zip(shares, parts, strict=True) for total in _totals(part)])


def _count(before: Sequence[float], after: Sequence[float], *, higher_is_better: bool = True) -> tuple[int, int]:
    """How many scores got worse, and how many better."""
    fell = sum(old > new for old, new in zip(before, after, strict=True))
    rose = sum(old < new for old, new in zip(before, after, strict=True))
    return (fell, rose) if higher_is_better else (rose, fell)


def _right_or_wrong(scores: Sequence[Score]) -> bool:
    return all(score in (0.0, 1.0) for score in scores)


def _mean_interval(paired: _Paired) -> Interval | None:
    before, after, clusters = _flat(paired)
    if len(set(clusters)) < 2:
        return None
    return paired_difference(before, after, clusters=clusters if len(before) > len(paired.before) else None).interval


def _flat(paired: _Paired) -> tuple[list[float], list[float], list[int]]:
    """Both runs' scores, or all verdicts of all documents, and the document of each."""
    rows = [
        (float(old), float(new), place)
        for place, (before, after) in enumerate(zip(paired.before, paired.after, strict=True))
        for old, new in zip(_verdicts(before), _verdicts(after), strict=True)
    ]
    before, after, places = zip(*rows, strict=True)
    return list(before), list(after), list(places)


def _verdicts(score: Score) -> tuple[float | bool, ...]:
    return score if isinstance(score, tuple) else (score,)


def _totals(paired: _Paired) -> list[float]:
    """Each document's difference, summed over its verdicts."""
    return [
        float(sum(_verdicts(new)) - sum(_verdicts(old))) for old, new in zip(paired.before, paired.after, strict=True)
    ]


def _flips(pairing: Pairing, key: str, paired: _Paired) -> Iterator[Flip]:
    before, after = document_means(paired.before), document_means(paired.after)
    flipped = [
        (doc_id, "lost" if (new < old) == paired.higher_is_better else "gained")
        for doc_id, old, new in zip(paired.doc_ids, before, after, strict=True)
        if old != new
    ]
    if not flipped:
        return
    filter_name = MetricKey.read(key).filter
    numbers = {pair.doc_id: pairing.baseline.doc_ids[pair.before] for pair in pairing.pairs if pair.before is not None}
    texts_before = read_answers(pairing.baseline, filter_name, [numbers[doc_id] for doc_id, _ in flipped])
    texts_after = read_answers(pairing.candidate, filter_name, [doc_id for doc_id, _ in flipped])
    for doc_id, change in flipped:
        yield Flip(
            task=paired.task,
            metric=key,
            doc_id=doc_id,
            change="lost" if change == "lost" else "gained",
            before=texts_before.get(numbers[doc_id]),
            after=texts_after.get(doc_id),
        )


def _remarks_on_runs(baseline: RecordedRun, candidate: RecordedRun) -> Iterator[str]:
    if are_same_run(baseline, candidate):
        yield "same run on both sides: its answers are compared with themselves, which says nothing about a server"
    for run in (baseline, candidate):
        if run.stopped_early:
            yield (
                f"{run.source} was stopped early: only what it asked is compared, and intervals and p-values "
                "do not allow for that it stopped where it did"
            )


def _remarks(baseline: RecordedRun, candidate: RecordedRun, pairings: Mapping[str, Pairing]) -> Iterator[str]:
    for here, there in ((baseline, candidate), (candidate, baseline)):
        if missing := [name for name in here.tasks if name not in there.tasks]:
            yield f"only in {here.source}: {', '.join(missing)}"
    for name, pairing in pairings.items():
        if pairing.not_asked:
            yield f"{name}: {pairing.not_asked} documents are only in {baseline.source}"
        keys = [*pairing.baseline.values, *pairing.candidate.values]
        left_out = dict.fromkeys(
            key for key in keys if key not in pairing.baseline.scores or key not in pairing.candidate.scores
        )
        if left_out:
            yield f"{name}: {', '.join(left_out)} cannot be compared document by document"
