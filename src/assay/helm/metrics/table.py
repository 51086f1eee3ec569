"""Aggregates instances' statistics to trials, and trials to a run.

All additions and all statistics are in HELM's order, so that sums are equal to the last bit.
"""

from __future__ import annotations

import math
from array import array
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from assay.helm.metrics.worst_case import WorstCases, overall_worst_names
from assay.helm.stats import MetricContext, MetricName, Moments, PerInstanceStats, Stat
from assay.helm.structs import plain_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from assay.helm.scenario import Instance

Value = int | float | Moments | None
"""The contribution of one instance: a number, the moments of several, or nothing."""

Named = list[tuple[str, int | float | None]]
"""Statistics' names and values, without a context."""

_CACHE_SIZE = 256


class Column:
    """The running sums of one metric name in one context, for the current trial."""

    __slots__ = ("_floats", "_integers", "empty", "has_moments", "has_value", "is_open", "lows", "moments", "name")

    def __init__(self, name: MetricName) -> None:
        self.name = name
        self.empty = Stat(name)
        self.is_open = False
        self.has_value = False
        self.has_moments = False
        self.moments = Moments()
        self.lows = Moments()
        """The smallest value of each instance that contributes several."""
        self._integers: dict[int | float, Stat] = {}
        self._floats: dict[int | float, Stat] = {}

    def begin(self) -> None:
        """Start a trial."""
        self.is_open = True
        self.has_value = False
        self.moments = Moments()
        self.lows = Moments()

    def add(self, value: Value) -> Stat:
        """Add an instance's value and return its Stat."""
        if value is None:
            return self.empty
        if isinstance(value, Moments):
            self.has_moments = True
            self.lows.add(value.low)
            self.moments.merge(value)
            return value.to_stat(self.name)
        if type(value) is not float:
            value = plain_number(value)
        stat = self._stat(value)
        moments = self.moments
        moments.total += value
        moments.squares += stat.sum_squared
        moments.count += 1
        return stat

    def _stat(self, value: int | float) -> Stat:
        """A Stat that instances with the same value share, since most values repeat."""
        known: dict[int | float, Stat] = self._integers if isinstance(value, int) else self._floats
        stat = known.get(value)
        if stat is not None and (value or math.copysign(1, value) > 0):
            return stat
        stat = Stat.of(self.name, value)
        if len(known) < _CACHE_SIZE and (value or math.copysign(1, value) > 0):
            known[value] = stat
        return stat


class Perturbations(Enum):
    """How a table treats perturbed copies of instances."""

    IGNORED = "ignored"
    """The metric has no worst cases."""
    ABSENT = "absent"
    """There are none: every instance is its own worst case."""
    PRESENT = "present"

    @classmethod
    def given(cls, are_there: bool) -> Perturbations:
        """The treatment by a metric with worst cases."""
        return cls.PRESENT if are_there else cls.ABSENT


class ContextTotals(NamedTuple):
    """The totals of one context at the end of a trial."""

    context: MetricContext
    sums: dict[str, Moments]
    confidences: array[float]
    """The probability that the model gave its answer, for each instance with an ``exact_match``."""
    correct: array[int]
    has_logprobs: bool
    num_instances: int


class _Context:
    """The columns of one context, and its instances' values for calibration."""

    def __init__(self, context: MetricContext) -> None:
        self.context = context
        self.columns: dict[str, Column] = {}
        self.layouts: dict[tuple[str, ...], _Layout] = {}
        self.begin()

    def begin(self) -> None:
        self.confidences = array("d")
        self.correct = array("b")
        self.has_logprobs = False
        self.num_instances = 0

    def layout(self, names: tuple[str, ...]) -> _Layout:
        layout = self.layouts.get(names)
        if layout is None:
            columns = [self._column(name) for name in names]
            indices = tuple(
                names.index(name) if name in names else -1 for name in ("max_prob", "exact_match", "logprob")
            )
            layout = self.layouts[names] = _Layout(columns, *indices)
        return layout

    def _column(self, name: str) -> Column:
        if name not in self.columns:
            self.columns[name] = Column(MetricName(name, *self.context))
        return self.columns[name]


class _Layout(NamedTuple):
    columns: list[Column]
    confidence: int
    correct: int
    logprob: int


class TrialTable:
    """Aggregates a metric's per-instance values over the trials of a run.

    Args:
        derive: Further statistics of a context's sums (perplexity).
        derive_from_instances: Further statistics of a context's instances (calibration).
        perturbations: Whether worst cases are taken, and over what.
    """

    def __init__(
        self,
        derive: Callable[[ContextTotals], Named] = lambda _: [],
        derive_from_instances: Callable[[ContextTotals], Named] = lambda _: [],
        perturbations: Perturbations = Perturbations.IGNORED,
    ) -> None:
        self._derive = derive
        self._derive_from_instances = derive_from_instances
        self._perturbations = perturbations
        self._worst_cases = WorstCases() if perturbations is Perturbations.PRESENT else None
        self._contexts: dict[MetricContext, _Context] = {}
        self._run: dict[MetricName, Moments] = {}
        self._trial = -1
        self._open: list[_Context] = []
        self._order: list[Column] = []
        self._valued: list[Column] = []

    def add(self, trial: int, instance: Instance, names: tuple[str, ...], values: Sequence[Value]) -> PerInstanceStats:
        """Add one instance's values; trials must come one after the other."""
        if trial != self._trial:
            self._close_trial()
            self._trial = trial
        context = self._context(instance)
        layout = context.layout(names)
        stats: list[Stat] = []
        for column, value in zip(layout.columns, values, strict=True):
            if not column.is_open:
                column.begin()
                self._order.append(column)
            stat = column.add(value)
            if stat.count and not column.has_value:
                column.has_value = True
                self._valued.append(column)
            stats.append(stat)
        self._note(context, layout, stats)
        if self._worst_cases is not None:
            self._worst_cases.add(instance.id or "", stats)
        return PerInstanceStats(
            instance_id=instance.id or "", perturbation=instance.perturbation, train_trial_index=trial, stats=stats
        )

    def add_named(self, trial: int, instance: Instance, statistics: Named) -> PerInstanceStats:
        """Add one instance's named values."""
        names, values = zip(*statistics, strict=True)
        return self.add(trial, instance, names, values)

    def finish(self) -> list[Stat]:
        """The run's statistics: for each name, the means of the trials."""
        self._close_trial()
        return [moments.to_stat(name) for name, moments in self._run.items()]

    def _context(self, instance: Instance) -> _Context:
        key = MetricContext.from_instance(instance)
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = _Context(key)
        if context.num_instances == 0:
            self._open.append(context)
        context.num_instances += 1
        return context

    @staticmethod
    def _note(context: _Context, layout: _Layout, stats: list[Stat]) -> None:
        if layout.logprob >= 0 and stats[layout.logprob].sum < 0:
            context.has_logprobs = True
        if layout.confidence < 0 or layout.correct < 0:
            return
        confidence, correct = stats[layout.confidence].mean, stats[layout.correct].mean
        if confidence is not None and correct is not None:
            context.confidences.append(confidence)
            context.correct.append(int(correct))

    def _close_trial(self) -> None:
        if not self._order:
            return
        for column in self._order:
            self._merge(column.name, column.moments)
        totals = [self._totals(context) for context in self._open]
        for derive in (self._derive, self._derive_from_instances):
            for total in totals:
                for name, value in derive(total):
                    self._merge(MetricName(name, *total.context), Moments.of(value))
        for worst_name, moments in self._worst():
            self._merge(worst_name, moments)
        for column in self._order:
            column.is_open = False
        for context in self._open:
            context.begin()
        self._order, self._open, self._valued = [], [], []

    def _totals(self, context: _Context) -> ContextTotals:
        sums = {name: column.moments for name, column in context.columns.items() if column.is_open}
        return ContextTotals(
            context.context, sums, context.confidences, context.correct, context.has_logprobs, context.num_instances
        )

    def _worst(self) -> Iterable[tuple[MetricName, Moments]]:
        if self._worst_cases is not None:
            yield from self._worst_cases.finish()
            return
        if self._perturbations is Perturbations.IGNORED:
            return
        for column in self._valued:
            worst = column.lows if column.has_moments else column.moments
            for name in overall_worst_names(column.name):
                yield name, worst

    def _merge(self, name: MetricName, trial: Moments) -> None:
        run = self._run.get(name)
        if run is None:
            run = self._run[name] = Moments()
        run.add(trial.mean)
