"""A task's metrics: their keys in the results as far as known before the first answer, and how they are aggregated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.types import MetricKey

if TYPE_CHECKING:
    from assay.tasks.library import LoadedTasks
    from assay.tasks.protocol import Task


def metric_keys_by_name(loaded: LoadedTasks) -> dict[str, list[str]]:
    """The expected keys of every task and group that will report any."""
    keys = {name: expected_group_keys(group) for name, group in loaded.groups.items()}
    keys |= {name: expected_task_keys(task) for name, task in loaded.tasks.items()}
    return {name: known for name, known in keys.items() if known}


def expected_task_keys(task: Task) -> list[str]:
    """``"<metric>,<filter>"`` for every filter and metric that the task declares, in the order of lm-eval's results."""
    filters = [ensemble.name for ensemble in getattr(task, "_filters", [])]
    return [
        str(MetricKey(reported, name))
        for name in filters
        for metric in task.aggregation()
        for reported in _reported(task, metric)
    ]


def aggregation_of(task: Task, metric: str) -> Any:
    """The function that makes one number of the documents' values: the task's own, or lm-eval's mean."""
    from lm_eval.api.metrics import mean

    return task.aggregation().get(metric, mean)


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
    return keys
