"""Which documents a check covers, and how much each counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from assay.checks.verdicts import refuse_outside_range
from assay.scoring.measure import weighs_by_size
from assay.stats.sampling import document_weights
from assay.tasks.metric_ranges import UNIT, is_right_or_wrong, known_range
from assay.tasks.metrics import aggregates_by_mean, direction_of, expected_task_keys
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.stats.plans import Weight
    from assay.tasks.library import LoadedTasks
    from assay.tasks.protocol import Task
    from assay.types import Check


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that a check covers, and what is known of their scores."""

    tasks: tuple[str, ...]
    """The task itself, or those tasks of the group that report the metric and make up the group's score."""
    not_reporting: tuple[str, ...] = ()
    """The group's tasks that do not report the metric."""
    weighted_by_size: bool = True
    """Whether the group's score weights its tasks by their documents; without effect for a single task."""
    higher_is_better: bool = True
    """True also if the tasks do not say."""
    direction_is_stated: bool = False
    """All tasks state the same direction."""
    is_mean: bool = True
    """The score is a mean over documents. Other scores are known only when all documents are answered."""
    range: tuple[float, float] | None = None
    """Least and greatest score of a document; None if neither the metric nor the check states it."""
    right_or_wrong: bool = False
    """Every document scores 0 or 1, and the check states no other range."""

    @property
    def may_stop_early(self) -> bool:
        """Whether part of the documents can decide: only if the score is a mean, and the range of scores is known."""
        return self.is_mean and self.range is not None

    def population(self, sizes: Mapping[str, int]) -> int:
        """How many documents all its tasks have together.

        Args:
            sizes: by task, how many documents it has.
        """
        return sum(sizes[task] for task in self.tasks)

    def weights(self, sizes: Mapping[str, int]) -> dict[str, Weight]:
        """By task, the weight of one of its documents in the mean over all; 1 where all count the same."""
        if self.weighted_by_size or len(self.tasks) == 1:
            return dict.fromkeys(self.tasks, 1.0)
        counts = [sizes[task] for task in self.tasks]
        return dict(zip(self.tasks, document_weights(counts, [1.0] * len(counts)), strict=True))


def scope_of(check: Check, loaded: LoadedTasks) -> Scope:
    """The scope of a resolved check.

    Raises:
        SpecificationError: the demand lies outside the known range of the metric.
    """
    name, metric = check.task or "", MetricKey.read(check.metric).metric
    group = loaded.groups.get(name)
    if group is None:
        return _scope(check, [loaded.tasks[name]], (name,), metric, by_size=True)
    members = group.get_all_tasks()
    tasks = [task for task in members if check.metric in expected_task_keys(task)] or members
    names = tuple(task.task_name for task in tasks)
    scope = _scope(check, tasks, names, metric, by_size=weighs_by_size(group, metric))
    return msgspec.structs.replace(
        scope, not_reporting=tuple(task.task_name for task in members if task.task_name not in names)
    )


def _scope(check: Check, tasks: list[Task], names: tuple[str, ...], metric: str, *, by_size: bool) -> Scope:
    known = {known_range(task, metric) for task in tasks}
    directions = {direction_of(task, metric) for task in tasks}
    scope = Scope(
        tasks=names,
        weighted_by_size=by_size,
        higher_is_better=False not in directions,
        direction_is_stated=directions in ({True}, {False}),
        is_mean=all(aggregates_by_mean(task, metric) for task in tasks),
        range=check.range or (known.pop() if len(known) == 1 else None),
        right_or_wrong=check.range in (None, UNIT) and all(is_right_or_wrong(task, metric) for task in tasks),
    )
    if scope.is_mean and scope.range is not None:
        refuse_outside_range(check, scope.range)
    return scope


def doubts_of(check: Check, scope: Scope) -> list[str]:
    """Warnings about a check that the user probably meant otherwise."""
    return [words for words in (_direction_doubt(check, scope), _certainty_doubt(check, scope)) if words is not None]


def _certainty_doubt(check: Check, scope: Scope) -> str | None:
    """A warning if every possible score passes; None if one could fail, or the range is not known."""
    if scope.range is None:
        return None
    low, high = scope.range
    for name, met_by_all in (("min", low), ("max", high), ("margin", high - low)):
        if (value := getattr(check, name)) == met_by_all:
            return f"{name} = {value:g} is met whatever the scores are, so that this check cannot fail"
    return None


def _direction_doubt(check: Check, scope: Scope) -> str | None:
    """A warning if the check passes worse scores and fails better ones; None if not, or if the tasks do not say."""
    if not scope.direction_is_stated or check.baseline is not None or scope.higher_is_better is (check.min is not None):
        return None
    better, given, other = ("more", "max", "min") if scope.higher_is_better else ("less", "min", "max")
    demand = f"{given} = {getattr(check, given):g}"
    return f"for this metric {better} is better, so that {demand} fails good servers; did you mean {other}?"
