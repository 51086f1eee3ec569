"""A task's metrics: their keys in the results as far as known before the first answer, and how they are aggregated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.tasks.repeats import base_metric, pipelines_of_single_answers, repeat_metrics, repeats_asked
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.tasks.library import LoadedTasks
    from assay.tasks.protocol import Task


def metric_keys_by_name(loaded: LoadedTasks) -> dict[str, list[str]]:
    """The expected keys of every task and group that will report any."""
    keys = {name: expected_group_keys(group) for name, group in loaded.groups.items()}
    keys |= {name: expected_task_keys(task) for name, task in loaded.tasks.items()}
    return {name: known for name, known in keys.items() if known}


def expected_task_keys(task: Task) -> list[str]:
    """``"<metric>,<filter>"`` for every filter and metric that the task declares, in the order of lm-eval's results.

    After them what repeats that the user asks for add.
    """
    filters = [ensemble.name for ensemble in getattr(task, "_filters", [])]
    reported = [name for metric in task.aggregation() for name in _reported(task, metric)]
    return [*(str(MetricKey(name, chosen)) for chosen in filters for name in reported), *_repeat_keys(task, reported)]


def _repeat_keys(task: Task, reported: Sequence[str]) -> list[str]:
    repeats = repeats_asked(task)
    if repeats == 1:
        return []
    metrics = [metric for metric in reported if aggregates_by_mean(task, metric)]
    return [
        str(MetricKey(str(repeated), pipeline.name))
        for pipeline in pipelines_of_single_answers(task)
        for metric in metrics
        for repeated in repeat_metrics(metric, repeats, higher_is_better=direction_of(task, metric))
    ]


def direction_of(task: Task, metric: str) -> bool | None:
    """Whether more of a metric is better; None where the task does not say."""
    return task.higher_is_better().get(base_metric(metric))


def aggregation_of(task: Task, metric: str) -> Any:
    """The function that makes one number of the documents' values: the task's own, or lm-eval's mean."""
    from lm_eval.api.metrics import mean

    return task.aggregation().get(base_metric(metric), mean)


def aggregates_by_mean(task: Task, metric: str) -> bool:
    """Whether a task's metric is the mean of its documents' scores."""
    from lm_eval.api.metrics import mean

    return aggregation_of(task, metric) is mean


def may_aggregate_none(task: Task, metric: str) -> bool:
    """Whether the metric's value may be None for some documents: lm-eval's own aggregations but one fail on that."""
    from lm_eval.api.metrics import bypass_agg

    function = aggregation_of(task, metric)
    return function is bypass_agg or getattr(function, "__module__", None) != bypass_agg.__module__


def _reported(task: Task, metric: str) -> list[str]:
    """The names under which a declared metric is reported: pass@k gives one value for each k that it is asked for."""
    if metric != "pass_at_k":
        return [metric]
    sizes = getattr(task, "_metric_fn_kwargs", {}).get(metric, {}).get("k", [])
    return [f"pass@{size}" for size in ([sizes] if isinstance(sizes, int) else sizes)] or [metric]


def expected_group_keys(group: Any) -> list[str]:
    """The keys that a group aggregates; none for a group that only lists its members."""
    member_keys = dict.fromkeys(key for task in group.get_all_tasks() for key in expected_task_keys(task))
    keys = []
    for config in group.aggregate_metric_list or ():
        if config.filter_list is None:
            keys += [key for key in member_keys if MetricKey.read(key).metric == config.metric]
        else:
            keys += [str(MetricKey(config.metric, name)) for name in config.filter_list]
    return [*keys, *(key for key in member_keys if _repeats_any_of(keys, MetricKey.read(key)))]


def _repeats_any_of(keys: Sequence[str], key: MetricKey) -> bool:
    base = base_metric(key.metric)
    return base != key.metric and str(MetricKey(base, key.filter)) in keys
