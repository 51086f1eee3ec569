"""The scores and checks of a run in progress, for progress displays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.progress import Standing
from assay.results.check_results import demand_of
from assay.runs.record import mean, score_of
from assay.scoring.measure import interval_of
from assay.stats.plans import Decision
from assay.tasks.metrics import aggregates_by_mean
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.checks.early_stopping import EarlyStopper
    from assay.checks.planned import PlannedCheck
    from assay.checks.sequential import SequentialCheck
    from assay.scoring.task_scores import TaskScores
    from assay.types import Check


class RunSnapshot:
    """Scores and checks of the answers received so far; see :class:`assay.progress.Snapshot`."""

    def __init__(
        self, scores: Mapping[str, TaskScores], planned: Sequence[PlannedCheck], stopper: EarlyStopper | None
    ) -> None:
        self._scores = scores
        self._planned = planned
        self._stopper = stopper
        self._last: tuple[dict[str, Standing], list[str]] | None = None
        """Tasks and checks as they were when the snapshot was frozen."""

    def freeze(self) -> None:
        """Keep the present state, so that the scores can be released."""
        self._last = ({name: self._standing(scores) for name, scores in self._scores.items()}, self.checks())

    def standings(self, tasks: Sequence[str]) -> list[Standing]:
        """The state of some of the run's tasks, in the given order."""
        if self._last is not None:
            return [self._last[0][name] for name in tasks]
        return [self._standing(self._scores[name]) for name in tasks]

    def checks(self) -> list[str]:
        """One line for each check."""
        if self._last is not None:
            return self._last[1]
        if self._stopper is not None:
            return [_sequential_line(check) for check in self._stopper.checks]
        return [f"{_name_of(plan.check)}: {self._value_so_far(plan)}" for plan in self._planned]

    def _standing(self, scores: TaskScores) -> Standing:
        key, values = scores.first_values()
        value = interval = None
        if key is not None and aggregates_by_mean(scores.task, MetricKey.read(key).metric):
            value = _mean(values)
            interval = None if self._stopper is not None else interval_of(values)
        return Standing(scores.name, key, value, interval, scores.scored, len(scores.failed))

    def _value_so_far(self, plan: PlannedCheck) -> str:
        key = MetricKey.read(plan.check.metric)
        found = [value for name in plan.scope.tasks for value in self._scores[name].values_so_far(*key)]
        value = _mean(found)
        return "nothing scored yet" if value is None else f"{value:.4f} on {len(found)} documents so far"


def _mean(values: Sequence[object]) -> float | None:
    scores = list(_scores(values))
    return mean(scores) if scores and len(scores) == len(values) else None


def _scores(values: Sequence[object]) -> Iterator[float | tuple[bool, ...]]:
    for value in values:
        score = score_of(value)
        if score is not None:
            yield score


def _sequential_line(check: SequentialCheck) -> str:
    verdict = "undecided" if check.decision is Decision.OPEN else check.decision.value.upper()
    return f"{_name_of(check.check)}: {verdict} after {check.seen} documents{_estimate(check)}"


def _name_of(check: Check) -> str:
    return f"{check.task or ''} {check.metric} {demand_of(check)}".lstrip()


def _estimate(check: SequentialCheck) -> str:
    value = check.value_so_far
    return "" if value is None else f", {value:.4f} so far"
