"""Metrics that are computed from all instances of a context together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from assay.helm.metrics.base import Evaluation, Metric, Setting
from assay.helm.stats import MetricContext, MetricName, Moments, Stat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.helm.adaptation import RequestState
    from assay.helm.groups import Group
    from assay.helm.metrics.table import Named
    from assay.helm.scenario import Instance


class ContextMeans:
    """Means over trials of statistics that a trial has once for each context."""

    def __init__(self) -> None:
        self._run: dict[MetricName, Moments] = {}

    def add(self, context: MetricContext, name: str, moments: Moments) -> None:
        """Add one trial's statistic."""
        self._run.setdefault(MetricName(name, *context), Moments()).add(moments.mean)

    def stats(self) -> list[Stat]:
        """The run's statistics."""
        return [moments.to_stat(name) for name, moments in self._run.items()]


class InstancesPerSplitMetric(Metric):
    """The number of instances in each context."""

    handles_language_modeling: ClassVar[bool] = True
    needs_answers: ClassVar[bool] = False

    def begin(self, setting: Setting) -> Evaluation:  # noqa: ARG002
        """Start the evaluation of a run."""
        return _InstanceCount()


class _InstanceCount(Evaluation):
    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[int, dict[MetricContext, int]] = {}
        """By trial, with contexts in the file's order, as in HELM; the order of groups may differ."""

    def add_state(self, state: RequestState) -> None:
        context = MetricContext.from_instance(state.instance)
        self._counts.setdefault(state.train_trial_index, {}).setdefault(context, 0)

    def add_group(self, group: Group) -> None:
        self._counts[group.trial][MetricContext.from_instance(group.instance)] += 1

    def finish(self) -> list[Stat]:
        means = ContextMeans()
        for _, counts in sorted(self._counts.items()):
            for context, count in counts.items():
                if count:
                    means.add(context, "num_instances", Moments.of(count))
        return means.stats()


class WholeRunMetric(Metric, ABC):
    """A metric of all answers of a context together.

    Until a trial is complete, only the `digest` of each answer is kept in memory.
    """

    def begin(self, setting: Setting) -> Evaluation:  # noqa: ARG002
        """Start the evaluation of a run."""
        return _WholeRun(self)

    @abstractmethod
    def digest(self, state: RequestState) -> object:
        """The part of an answer that `summarize` needs.

        Raises:
            UsageError: The metric does not take such requests.
        """

    @abstractmethod
    def summarize(self, digests: Sequence[object]) -> list[tuple[str, Moments]]:
        """The statistics of one context in one trial."""


class _WholeRun(Evaluation):
    def __init__(self, metric: WholeRunMetric) -> None:
        super().__init__()
        self._metric = metric
        self._digests: dict[MetricContext, list[object]] = {}
        self._means = ContextMeans()
        self._trial = 0

    def add_group(self, group: Group) -> None:
        if group.trial != self._trial:
            self._close_trial()
            self._trial = group.trial
        if group.generation is not None:
            context = MetricContext.from_instance(group.instance)
            self._digests.setdefault(context, []).append(self._metric.digest(group.generation))

    def finish(self) -> list[Stat]:
        self._close_trial()
        return self._means.stats()

    def _close_trial(self) -> None:
        for context, digests in self._digests.items():
            for name, moments in self._metric.summarize(digests):
                self._means.add(context, name, moments)
        self._digests = {}


def moments_of(named: Named) -> list[tuple[str, Moments]]:
    """Each value as the moments of one value."""
    return [(name, Moments.of(value)) for name, value in named]


def instance_label(instance: Instance) -> str:
    """An instance's name in messages."""
    return f"instance {instance.id}"
