"""Which documents a check looks at, and how much each counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from assay.checks.verdicts import refuse_outside
from assay.scoring.measure import aggregates_by_mean, weighs_by_size
from assay.stats.sampling import document_weights
from assay.tasks.metric_ranges import UNIT, is_right_or_wrong, known_range
from assay.tasks.metrics import expected_task_keys
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.stats.plans import Weight
    from assay.tasks.library import LoadedTasks
    from assay.tasks.protocol import Task
    from assay.types import Check


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a check looks at."""

    tasks: tuple[str, ...]
    """The task itself, or the group's tasks that report the metric, over which lm-eval forms the group's."""
    silent: tuple[str, ...] = ()
    """The group's tasks that do not report it."""
    weighted_by_size: bool = True
    """How the group's aggregate is formed; for a task it makes no difference."""
    higher_is_better: bool = True
    """Also where the tasks do not say."""
    says_direction: bool = False
    """The tasks say so, all alike."""
    is_mean: bool = True
    """The score is a mean over documents; others are known only when all are answered."""
    range: tuple[float, float] | None = None
    """Least and greatest score that a document can have; None where neither the metric nor the check tells."""
    right_or_wrong: bool = False
    """Every document scores 0 or 1, and the check states no other range."""

    @property
    def may_stop_early(self) -> bool:
        """Whether some of the documents can decide: only of bounded scores that are averaged do some bound the rest."""
        return self.is_mean and self.range is not None

    def population(self, sizes: Mapping[str, int]) -> int:
        """Documents of all its tasks, from how many each has."""
        return sum(sizes[task] for task in self.tasks)

    def weights(self, sizes: Mapping[str, int]) -> dict[str, Weight]:
        """For each task the weight of one of its documents in the mean over all; 1 where all count the same."""
        if self.weighted_by_size or len(self.tasks) == 1:
            return dict.fromkeys(self.tasks, 1.0)
        counts = [sizes[task] for task in self.tasks]
        return dict(zip(self.tasks, document_weights(counts, [1.0] * len(counts)), strict=True))


def scope_of(check: Check, loaded: LoadedTasks) -> Scope:
    """The scope of a resolved check.

    Raises:
        SpecificationError: it demands what no score of the metric's known range could miss or reach.
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
        scope, silent=tuple(task.task_name for task in members if task.task_name not in names)
    )


def _scope(check: Check, tasks: list[Task], names: tuple[str, ...], metric: str, *, by_size: bool) -> Scope:
    known = {known_range(task, metric) for task in tasks}
    directions = {task.higher_is_better().get(metric) for task in tasks}
    scope = Scope(
        tasks=names,
        weighted_by_size=by_size,
        higher_is_better=False not in directions,
        says_direction=directions in ({True}, {False}),
        is_mean=all(aggregates_by_mean(task, metric) for task in tasks),
        range=check.range or (known.pop() if len(known) == 1 else None),
        right_or_wrong=check.range in (None, UNIT) and all(is_right_or_wrong(task, metric) for task in tasks),
    )
    if scope.is_mean and scope.range is not None:
        refuse_outside(check, scope.range)
    return scope


def doubts_of(check: Check, scope: Scope) -> list[str]:
    """What of a check is probably not meant, in words."""
    return [words for words in (_direction_doubt(check, scope), _certainty_doubt(check, scope)) if words is not None]


def _certainty_doubt(check: Check, scope: Scope) -> str | None:
    """Say that every score passes; None where one could fail, as far as the range is known."""
    if scope.range is None:
        return None
    low, high = scope.range
    for name, met_by_all in (("min", low), ("max", high), ("margin", high - low)):
        if (value := getattr(check, name)) == met_by_all:
            return f"{name} = {value:g} is met whatever the scores are, so that this check cannot fail"
    return None


def _direction_doubt(check: Check, scope: Scope) -> str | None:
    """Say that a check lets worse scores pass and fails better ones; None if it does not, as far as the tasks say."""
    if not scope.says_direction or check.baseline is not None or scope.higher_is_better is (check.min is not None):
        return None
    better, given, other = ("more", "max", "min") if scope.higher_is_better else ("less", "min", "max")
    demand = f"{given} = {getattr(check, given):g}"
    return f"for this metric {better} is better, so that {demand} fails good servers; did you mean {other}?"
