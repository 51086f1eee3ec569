"""From scored samples to scores: lm-eval's values, intervals, and bounds that allow for failed samples."""

from __future__ import annotations

from collections import Counter
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from assay.stats.intervals import Interval, clustered_mean_interval, failure_bounds, mean_interval, wilson
from assay.stats.strata import stratified_interval
from assay.stats.validate import UNBOUNDED
from assay.tasks.metric_ranges import UNIT, known_range
from assay.tasks.metrics import (
    aggregates_by_mean,
    direction_of,
    expected_group_keys,
    expected_task_keys,
)
from assay.tasks.repeats import RepeatMetric, base_metric, is_of_repeats
from assay.types import MetricKey, MetricKeyText, Outcome, score_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from assay.scoring.task_scores import TaskScores
    from assay.stats.validate import Support
    from assay.tasks.library import LoadedTasks


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one task or group."""

    task: str
    metric: MetricKeyText
    """``"<metric>,<filter>"``, as in lm-eval's results."""
    value: float | None
    """lm-eval's value over the scored samples; None if nothing was scored."""
    stderr: float | None
    """lm-eval's standard error; None if it has none."""
    interval: Interval | None
    """95 % interval for the mean of the scored samples; None for metrics that are not means of numbers."""
    bounds: Interval | None
    """Range of the score of all samples, whatever the failed ones would have scored; None if it is not known."""
    n: int
    """How many samples were scored."""
    outcomes: dict[Outcome, int]
    """How many samples had which outcome, failed ones included."""
    higher_is_better: bool | None = None
    is_group: bool = False

    @property
    def failed(self) -> int:
        """How many samples have no score."""
        return self.outcomes.get(Outcome.FAILED, 0)


def measure(
    results: Mapping[str, Mapping[str, Any]], tasks: Mapping[str, TaskScores], loaded: LoadedTasks
) -> tuple[Score, ...]:
    """All scores of a run, in the order of lm-eval's results.

    Args:
        results: lm-eval's ``results`` section: task or group -> metric key -> value.
        tasks: the samples' scores, by task.
        loaded: the tasks and groups themselves.
    """
    scores: dict[str, dict[str, Score]] = {name: _task_scores(results[name], task) for name, task in tasks.items()}
    for name, group in loaded.groups.items():
        members = [task.task_name for task in group.get_all_tasks()]
        scores[name] = _group_scores(group, results.get(name, {}), [scores[member] for member in members])
    return tuple(score for name in results for score in scores.get(name, {}).values())


def without_intervals(scores: Sequence[Score], complete: Collection[str]) -> tuple[Score, ...]:
    """Scores of a run that stopped early, without intervals, which need a number of samples fixed beforehand.

    Args:
        scores: the scores of the documents asked.
        complete: tasks whose documents were all asked; they keep their intervals.
    """
    return tuple(
        score if score.task in complete else msgspec.structs.replace(score, interval=None, bounds=None)
        for score in scores
    )


def _task_scores(entry: Mapping[str, Any], task: TaskScores) -> dict[str, Score]:
    scores = {}
    expected = expected_task_keys(task.task)
    for key in [*score_keys(entry), *_repeats_told(task, expected)] or expected:
        metric, filter_name = MetricKey.read(key)
        values = list(task.values_by_document(metric, filter_name).values())
        is_mean = aggregates_by_mean(task.task, metric)
        repeated = RepeatMetric.read(metric)
        scores[key] = Score(
            task=task.name,
            metric=key,
            value=number_at(entry, key) if repeated is None else _mean(values),
            stderr=stderr_of(entry, key),
            interval=interval_of(values, repeated) if is_mean or _are_verdict_lists(values) else None,
            bounds=_failure_bounds(values, len(task.failed), known_range(task.task, metric)) if is_mean else None,
            n=len(values),
            outcomes=task.outcome_counts(filter_name),
            higher_is_better=direction_of(task.task, metric),
        )
    return scores


def _repeats_told(task: TaskScores, expected: Sequence[str]) -> list[str]:
    """Keys of repeat metrics that every scored document has: graded answers have no pass@k."""
    values = {key: task.values_by_document(*MetricKey.read(key)) for key in expected if is_of_repeats(key)}
    return [key for key, known in values.items() if known and len(known) == task.scored]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def interval_of(values: Sequence[Any], repeated: RepeatMetric | None = None) -> Interval | None:
    """95 % interval for a mean of per-document values, chosen by their kind.

    Wilson's for 0/1 values, cluster-robust if each document has several verdicts (IFEval's instructions), else from the
    standard error. None if the values are not numbers, or too few.

    The interval from the documents' means over equally many repeats *is* the cluster-robust one of all answers with the
    documents as clusters: their deviations add up to the same.

    Args:
        values: One for each document.
        repeated: What each value says about a document's repeated answers; None if it is about a single answer.
    """
    if _are_verdict_lists(values):
        flat = [float(verdict) for verdicts in values for verdict in verdicts]
        documents = [place for place, verdicts in enumerate(values) for _ in verdicts]
        return clustered_mean_interval(flat, documents, support=UNIT) if flat else None
    if not values or not all(isinstance(value, int | float) and isfinite(value) for value in values):
        return None
    if all(value in (0, 1) for value in values):
        return wilson(int(sum(values)), len(values))
    if len(values) == 1:
        return None
    interval = mean_interval(values, support=_support(values))
    return interval if repeated is None else msgspec.structs.replace(interval, method="clustered")


def weighs_by_size(group: Any, metric: str) -> bool:
    """Whether a group's aggregate of a metric (named without filter) weights tasks by their documents, or equally."""
    configs = {config.metric: config for config in group.aggregate_metric_list or ()}
    base = base_metric(metric)
    return base not in configs or bool(configs[base].weight_by_size)


def group_weighting(loaded: LoadedTasks) -> dict[str, dict[str, bool]]:
    """By group and metric key, :func:`weighs_by_size`; recorded because the values do not always show it."""
    return {
        name: {key: weighs_by_size(group, MetricKey.read(key).metric) for key in keys}
        for name, group in loaded.groups.items()
        if (keys := expected_group_keys(group))
    }


def _group_scores(group: Any, entry: Mapping[str, Any], members: Sequence[Mapping[str, Score]]) -> dict[str, Score]:
    scores = {}
    expected = expected_group_keys(group)
    told = [key for key in expected if is_of_repeats(key) and any(key in member for member in members)]
    for key in [*score_keys(entry), *told] or expected:
        parts = [member[key] for member in members if key in member]
        # lm-eval weighs a task by its documents, also for a metric that only some of them have.
        sizes = [max(score.n for score in member.values()) for member in members if key in member]
        weigh = weighs_by_size(group, MetricKey.read(key).metric)
        outcomes: Counter[Outcome] = Counter()
        for part in parts:
            outcomes.update(part.outcomes)
        scores[key] = Score(
            task=group.name,
            metric=key,
            value=_combined_value(parts, sizes if weigh else [1] * len(parts))
            if key in told
            else number_at(entry, key),
            stderr=stderr_of(entry, key),
            interval=_combined(parts, sizes if weigh else [1] * len(parts)),
            bounds=_combined_bounds(parts, sizes if weigh else None) if len(parts) == len(members) else None,
            n=sum(part.n for part in parts),
            outcomes=dict(outcomes),
            higher_is_better=_common(part.higher_is_better for part in parts),
            is_group=True,
        )
    return scores


def _combined_value(parts: Sequence[Score], weights: Sequence[int]) -> float | None:
    """The group's value where lm-eval knows of none, formed as it forms the others."""
    values = [part.value for part in parts if part.value is not None]
    if len(values) < len(parts) or not sum(weights):
        return None
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def _combined(parts: Sequence[Score], weights: Sequence[int]) -> Interval | None:
    values = [part.value for part in parts if part.value is not None]
    intervals = [part.interval for part in parts if part.interval is not None]
    if not parts or len(values) < len(parts) or len(intervals) < len(parts):
        return None
    return stratified_interval(values, intervals, weights)


def _combined_bounds(parts: Sequence[Score], sizes: Sequence[int] | None) -> Interval | None:
    """The group's bounds. Parts are weighted by their documents, failed ones included; equally if `sizes` is None."""
    weights = (
        [1] * len(parts) if sizes is None else [size + part.failed for part, size in zip(parts, sizes, strict=True)]
    )
    total = sum(weights)
    bounds = [part.bounds for part in parts if part.bounds is not None]
    if not total or len(bounds) < len(parts):
        return None
    low, high = (
        sum(getattr(bound, end) * weight for bound, weight in zip(bounds, weights, strict=True)) / total
        for end in ("low", "high")
    )
    return Interval(low=low, high=high, confidence=1.0, method="failure bounds")


def _failure_bounds(values: Sequence[Any], failed: int, known: Support | None) -> Interval | None:
    """The range of the mean whatever the failed samples would have scored.

    If the range of scores is not known, the other scores do not reveal it, unless they are all True or False.
    """
    numbers = [float(value) for value in values if isinstance(value, int | float) and isfinite(value)]
    if len(numbers) < len(values) or not len(numbers) + failed or _support(numbers) is not UNIT:
        return None
    are_verdicts = bool(values) and all(isinstance(value, bool) for value in values)
    if failed and known is None and not are_verdicts:
        return None
    return failure_bounds(sum(numbers), len(numbers), failed)


def _support(values: Sequence[float]) -> tuple[float, float]:
    """[0, 1], where accuracies, F1 and the like lie; no limits if a value is outside."""
    return UNIT if all(0 <= value <= 1 for value in values) else UNBOUNDED


def _are_verdict_lists(values: Sequence[Any]) -> bool:
    return bool(values) and all(
        isinstance(value, list) and all(isinstance(item, bool) for item in value) for value in values
    )


def stderr_of(entry: Mapping[str, Any], key: str) -> float | None:
    """The standard error of a score in a results entry; None if lm-eval has none."""
    return number_at(entry, str(MetricKey.read(key).stderr))


def number_at(entry: Mapping[str, Any], key: str) -> float | None:
    """A number in a results entry; None if there is none. lm-eval writes "N/A" in place of a missing number."""
    value = entry.get(key)
    return float(value) if isinstance(value, int | float) else None


def _common(values: Any) -> bool | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None
