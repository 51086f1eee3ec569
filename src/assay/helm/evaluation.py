"""Evaluates all metrics of a run in one pass over its requests."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from assay.errors import FileFormatError, MetricFailedError, UsageError
from assay.helm.adaptation import AdapterSpec, RequestState, ScenarioState
from assay.helm.groups import LANGUAGE_MODELING, OutOfOrderError, groups_as_read, groups_in_memory
from assay.helm.installed_helm import InstalledHelmMetric
from assay.helm.metrics.base import (
    DEFAULT_PARALLELISM,
    Evaluation,
    Metric,
    Setting,
    add_groups,
    check_computable,
    check_permission,
    check_tests,
    token_counter,
)
from assay.helm.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.helm.groups import Group
    from assay.helm.scoring.code import UnsafeCode
    from assay.helm.stats import PerInstanceStats, Stat
    from assay.helm.tokenization import TokenizerService

_PROGRESS_EVERY = 1000
_OPTION = "--tokenizer hf:PATH"


T = TypeVar("T")


class Sink(Protocol):
    """Receives the per-instance statistics of one metric. Instances with the same value may share one Stat."""

    def __call__(self, record: PerInstanceStats, /) -> None:
        """Receive one instance's statistics."""

    def reset(self) -> None:
        """Discard what was received: the evaluation starts again, or has failed."""


@dataclass(frozen=True)
class Evaluated:
    """The statistics of a run, and what could not be computed."""

    stats: list[Stat]
    """In the order of the metrics."""
    unscored: list[str]
    """For each instance that could not be scored, a line with the reason."""
    num_requests: int
    nothing_measured: str | None
    """Why no answer was scored at all, or None if some were."""
    failed: list[str]
    """For each metric that failed, a line with the reason; it has no statistics."""

    def check_metrics(self) -> None:
        """Raise if a metric failed.

        Raises:
            MetricFailedError: Names all metrics that failed.
        """
        if self.failed:
            others = "all other statistics are written, but " if self.stats else "there are no statistics: "
            raise MetricFailedError(f"{others}{'; '.join(self.failed)}")

    @property
    def duplicate_names(self) -> list[str]:
        """Names of statistics that several metrics compute for the same context."""
        counts = Counter(stat.name for stat in self.stats)
        return sorted({name.name for name, count in counts.items() if count > 1})


@dataclass(frozen=True)
class MetricPlan:
    """Which metrics can be computed."""

    metrics: list[Metric | InstalledHelmMetric]
    left_out: list[str]
    """For each metric or statistic that cannot be computed, a line with the reason."""


def plan_metrics(
    metrics: Sequence[Metric | InstalledHelmMetric],
    source: ScenarioState | StateFile,
    has_tokenizer: bool,
    unsafe_code: UnsafeCode | None = None,
) -> MetricPlan:
    """Find out before anything runs which metrics can be computed.

    In language modelling runs, where an instance may have several requests, HELM computes only its language modelling
    metric.

    Raises:
        UnsupportedTaskError: A metric runs code written by the model without permission.
        DataNotFoundError: A metric runs code written by the model, and there are no tests.
    """
    adapter_spec = source.adapter_spec
    possible: list[Metric | InstalledHelmMetric] = []
    left_out = []
    for metric in metrics:
        name = type(metric).__name__
        if isinstance(metric, InstalledHelmMetric):
            metric.check_permission(unsafe_code)
            possible.append(metric)
        elif adapter_spec.method == LANGUAGE_MODELING and not metric.handles_language_modeling:
            left_out.append(f"{name} is left out: it does not take language modelling runs")
        elif not metric.is_computable(adapter_spec, has_tokenizer):
            left_out.append(f"{name} is left out: it needs {_OPTION}")
        else:
            check_permission(metric, unsafe_code)
            check_tests(metric, source, unsafe_code)
            possible.append(metric)
            missing = None if has_tokenizer else metric.left_out_without_tokenizer(adapter_spec)
            if missing:
                left_out.append(f"{name}: {missing} is left out: it needs {_OPTION}")
    return MetricPlan(possible, left_out)


def evaluate(
    metrics: Sequence[Metric | InstalledHelmMetric],
    source: ScenarioState | StateFile,
    metric_service: TokenizerService | None,
    sinks: Sequence[Sink],
    parallelism: int = DEFAULT_PARALLELISM,
    progress: Callable[[int], None] = lambda _: None,
    unsafe_code: UnsafeCode | None = None,
) -> Evaluated:
    """Compute metrics over a run's requests.

    A state on disk is read as a stream. It is loaded into memory only if its requests are not sorted by trial and
    instance, or if the installed HELM computes a metric.

    Args:
        metrics: What to compute.
        source: The requests with their results.
        metric_service: Answers HELM's tokenization requests; ``None`` without a tokenizer.
        sinks: One for each metric; receives its per-instance statistics in order.
        parallelism: Maximum number of scoring processes. It changes no value.
        progress: Called from time to time with the number of requests read.
        unsafe_code: Permission to run code written by the model.

    Raises:
        MissingDependencyError: A metric needs a tokenizer and there is none.
        UnsupportedTaskError: A metric runs code written by the model without permission.
        DataNotFoundError: A metric runs code written by the model, and there are no tests.
        FileFormatError: The state is damaged or contradicts itself.
    """
    for metric in metrics:
        if isinstance(metric, Metric):
            check_computable(metric, source.adapter_spec, metric_service is not None)
            check_permission(metric, unsafe_code)
            check_tests(metric, source, unsafe_code)
        else:
            metric.check_permission(unsafe_code)
    if isinstance(source, StateFile) and any(isinstance(metric, InstalledHelmMetric) for metric in metrics):
        source = source.load()
    job = _Job(metrics, metric_service, sinks, parallelism, progress, unsafe_code)
    if isinstance(source, ScenarioState):
        return job.in_memory(source)
    try:
        return job.as_read(source)
    except OutOfOrderError:
        for sink in sinks:
            sink.reset()
        return job.in_memory(source.load())


@dataclass(frozen=True)
class _Job:
    metrics: Sequence[Metric | InstalledHelmMetric]
    service: TokenizerService | None
    sinks: Sequence[Sink]
    parallelism: int
    progress: Callable[[int], None]
    unsafe_code: UnsafeCode | None

    def as_read(self, source: StateFile) -> Evaluated:
        with ExitStack() as stack:
            evaluations = self._begin(source.adapter_spec, source.mentions("perturbation"), stack)
            feed = _RequestFeed(evaluations, self.progress)
            unanswered = add_groups(evaluations, groups_as_read(feed.states(source), source.adapter_spec))
            return self._finish(evaluations, unanswered, feed)

    def in_memory(self, state: ScenarioState) -> Evaluated:
        perturbed = any(one.instance.perturbation is not None for one in state.request_states)
        with ExitStack() as stack:
            evaluations = self._begin(state.adapter_spec, perturbed, stack, state)
            feed = _RequestFeed(evaluations, self.progress)
            for _ in feed.states(state.request_states):
                pass
            unanswered = add_groups(evaluations, groups_in_memory(state))
            return self._finish(evaluations, unanswered, feed)

    def _begin(
        self, adapter_spec: AdapterSpec, perturbed: bool, stack: ExitStack, state: ScenarioState | None = None
    ) -> list[_Isolated]:
        tokens = token_counter(self.service, adapter_spec)
        evaluations = []
        for metric, sink in zip(self.metrics, self.sinks, strict=True):
            evaluation: Evaluation
            if isinstance(metric, InstalledHelmMetric):
                evaluation = _InstalledHelmEvaluation(metric, cast("ScenarioState", state), self, sink)
            else:
                setting = Setting(adapter_spec, tokens, perturbed, self.parallelism, sink, self.unsafe_code)
                evaluation = metric.begin(setting)
            evaluations.append(_Isolated(evaluation, sink))
            stack.callback(evaluation.close)
        return evaluations

    def _finish(self, evaluations: list[_Isolated], unanswered: list[str], feed: _RequestFeed) -> Evaluated:
        by_metric = [evaluation.finish() for evaluation in evaluations]
        stats = [stat for stats in by_metric for stat in stats]
        unscored = [*unanswered, *(line for evaluation in evaluations for line in evaluation.unscored)]
        failed = [
            str(one.failure)
            if isinstance(metric, InstalledHelmMetric)
            else f"{type(metric).__name__} fails: {one.failure}"
            for metric, one in zip(self.metrics, evaluations, strict=True)
            if one.failure is not None
        ]
        return Evaluated(
            stats, list(dict.fromkeys(unscored)), feed.count, self._nothing_measured(by_metric, feed), failed
        )

    def _nothing_measured(self, by_metric: list[list[Stat]], feed: _RequestFeed) -> str | None:
        if not feed.count:
            return "the run has no requests"
        if not feed.num_answered:
            return "not one request has a result, so nothing could be scored"
        of_answers = [
            stats for metric, stats in zip(self.metrics, by_metric, strict=True) if metric.needs_answers
        ] or by_metric
        is_scored = any(stat.count for stats in of_answers for stat in stats)
        return None if is_scored else "not one request could be scored"


class _InstalledHelmEvaluation(Evaluation):
    """A metric of the installed HELM, which gets all requests at once at the end."""

    def __init__(self, metric: InstalledHelmMetric, state: ScenarioState, job: _Job, sink: Sink) -> None:
        super().__init__()
        self._metric = metric
        self._state = state
        self._job = job
        self._sink = sink

    def finish(self) -> list[Stat]:
        job = self._job
        result = self._metric.evaluate(self._state, job.service, None, job.parallelism, job.unsafe_code)
        for record in result.per_instance_stats:
            self._sink(record)
        return result.aggregated_stats


class _Isolated(Evaluation):
    """Keeps a failing metric from ending the others' evaluation; it then has no statistics."""

    def __init__(self, evaluation: Evaluation, sink: Sink) -> None:
        self.failure: UsageError | None = None
        self._evaluation = evaluation
        self._sink = sink

    @property
    def unscored(self) -> list[str]:  # type: ignore[override]  # read-only here
        return [] if self.failure else self._evaluation.unscored

    def add_state(self, state: RequestState) -> None:
        self._add(self._evaluation.add_state, state)

    def add_group(self, group: Group) -> None:
        self._add(self._evaluation.add_group, group)

    def _add(self, add: Callable[[T], None], what: T) -> None:
        if self.failure is None:
            try:
                add(what)
            except UsageError as error:
                self._fail(error)

    def finish(self) -> list[Stat]:
        if self.failure is None:
            try:
                return self._evaluation.finish()
            except UsageError as error:
                self._fail(error)
        return []

    def _fail(self, error: UsageError) -> None:
        if isinstance(error, FileFormatError):  # the requests contradict each other, for every metric
            raise error
        self.failure = error
        self._sink.reset()


class _RequestFeed:
    """Yields a run's requests after every evaluation has seen them, and counts them."""

    def __init__(self, evaluations: Sequence[Evaluation], progress: Callable[[int], None]) -> None:
        self.count = 0
        self.num_answered = 0
        self._evaluations = evaluations
        self._progress = progress

    def states(self, states: StateFile | list[RequestState]) -> Iterator[RequestState]:
        for state in states:
            for evaluation in self._evaluations:
                evaluation.add_state(state)
            self.count += 1
            self.num_answered += state.is_answered
            if self.count % _PROGRESS_EVERY == 0:
                self._progress(self.count)
            yield state
        self._progress(self.count)
