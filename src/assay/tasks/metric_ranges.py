"""Where a metric's scores lie, as far as that is known before the first answer.

A range is known only where the metric's nature gives it: lm-eval's registered metrics that are a share of right answers
(``acc`` and its variants, ``exact_match``) and ``pass@k``, which estimates a probability. Scores seen so far show no
range: a count of errors may be 0 a thousand times before it is 40.

A task's own Python may report a metric under one of these names. The name is trusted if the task also declares the
direction that lm-eval registered. No other name tells a range, however much it sounds like one (``f1`` is a share for
some tasks and a percentage for others): a check on such a metric states the range.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from assay.tasks.repeats import RepeatMetric, repeats_asked

if TYPE_CHECKING:
    from assay.stats.validate import Support
    from assay.tasks.protocol import Task

UNIT = (0.0, 1.0)
_SHARES = frozenset({"acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match"})
_PASS_AT_K = re.compile(r"pass@[1-9][0-9]*")
_COMPARED_BY_LM_EVAL = frozenset({"multiple_choice", "loglikelihood"})
"""Kinds of tasks for which lm-eval compares choices itself: right or wrong, nothing between."""


def known_range(task: Task, metric: str) -> Support | None:
    """Least and greatest score that a document of a task can have; None where that is not known.

    Args:
        task: lm-eval's Task object.
        metric: the metric's name, without a filter.
    """
    repeated = RepeatMetric.read(metric)
    if repeated is not None:
        return UNIT if repeated.kind == "pass" else known_range(task, repeated.base)
    return UNIT if is_share(metric) and task.higher_is_better().get(metric) is not False else None


def is_share(metric: str) -> bool:
    """Whether the scores of lm-eval's own metric of that name, without a filter, lie between 0 and 1."""
    return metric in _SHARES or _PASS_AT_K.fullmatch(metric) is not None


def is_right_or_wrong(task: Task, metric: str) -> bool:
    """Whether every document surely scores 0 or 1: lm-eval itself compares choices, or one answer with its target.

    Of several answers to a document ``exact_match`` is the mean, and a task's own Python may grade. Of repeats the best
    and the most frequent answer are single answers.
    """
    repeated = RepeatMetric.read(metric)
    if repeated is not None:
        is_one = repeated.kind == "maj" or (repeated.kind == "pass" and repeated.k == repeats_asked(task))
        return is_one and is_right_or_wrong(task, repeated.base)
    if (
        metric not in _SHARES
        or type(task).__name__ != "ConfigurableTask"
        or task.get_config("process_results") is not None
        or any(callable(entry.get("metric")) for entry in task.get_config("metric_list") or ())
    ):
        return False
    return task.get_config("output_type") in _COMPARED_BY_LM_EVAL or (metric == "exact_match" and _gives_one(task))


def _gives_one(task: Task) -> bool:
    """Whether all its filters are lm-eval's own and end with one answer, as they do where none is named."""
    pipelines = [entry["filter"] for entry in task.get_config("filter_list") or ()]
    return all(
        steps[-1]["function"] == "take_first" and all(isinstance(step["function"], str) for step in steps)
        for steps in pipelines
    )
