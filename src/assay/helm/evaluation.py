"""Evaluates all metrics of a run in one pass over its requests."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from assay.errors import FileFormatError, MetricFailedError, UsageError
from assay.helm.adaptation import AdapterSpec, RequestState, ScenarioState
from assay.helm.foreign import ForeignMetric
from assay.helm.groups import LANGUAGE_MODELING, OutOfOrderError, groups_as_read, groups_in_memory
from assay.helm.metrics.base import (
    DEFAULT_PARALLELISM,
    Evaluation,
    Metric,
    Setting,
    add_groups,
    check_permission,
    check_possible,
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
    """Takes the per-instance statistics of one metric. Instances with the same value share one Stat."""

    def __call__(self, record: PerInstanceStats, /) -> None:
        """Take one instance's statistics."""

    def reset(self) -> None:
        """Forget what was taken: the evaluation starts again."""


@dataclass(frozen=True)
class Evaluated:
    """What the metrics say of a run."""

    stats: list[Stat]
    """Those of the first metric first."""
    unscored: list[str]
    """One line for each instance that could not be scored: which, and why."""
    num_requests: int
    nothing_measured: str | None
    """Why the statistics say nothing of any answer, if that is so."""
    failed: list[str]
    """One line for each metric that fails on the run, of which there are no statistics: which, and why."""

    def check_metrics(self) -> None:
        """Say of metrics that failed that their statistics are missing.

        Raises:
            MetricFailedError: Some did.
        """
        if self.failed:
            others = "all other statistics are written, but " if self.stats else "there are no statistics: "
            raise MetricFailedError(f"{others}{'; '.join(self.failed)}")

    @property
    def duplicate_names(self) -> list[str]:
        """Names that more than one metric gives in the same context."""
        counts = Counter(stat.name for stat in self.stats)
        return sorted({name.name for name, count in counts.items() if count > 1})


@dataclass(frozen=True)
class Plan:
    """Which metrics can be computed, known before anything runs."""

    metrics: list[Metric | ForeignMetric]
    left_out: list[str]
    """One line for whatever cannot be computed without a tokenizer."""


def plan(
    metrics: Sequence[Metric | ForeignMetric],
    source: ScenarioState | StateFile,
    has_tokenizer: bool,
    unsafe_code: UnsafeCode | None = None,
) -> Plan:
    """Sort out what cannot be computed in this setting.

    HELM computes nothing but its language modelling metric where an instance may have several requests.

    Raises:
        UnsupportedTaskError: A metric runs what the model wrote, and nobody has allowed that.
        DataNotFoundError: A metric runs what the model wrote, and there are no tests.
    """
    adapter_spec = source.adapter_spec
    possible: list[Metric | ForeignMetric] = []
    left_out = []
    for metric in metrics:
        name = type(metric).__name__
        if isinstance(metric, ForeignMetric):
            metric.check_permission(unsafe_code)
            possible.append(metric)
        elif adapter_spec.method == LANGUAGE_MODELING and not metric.handles_language_modeling:
            left_out.append(f"{name} is not made for language modelling runs and is left out")
        elif not metric.is_possible(adapter_spec, has_tokenizer):
            left_out.append(f"{name} is left out: it needs {_OPTION}")
        else:
            check_permission(metric, unsafe_code)
            check_tests(metric, source, unsafe_code)
            possible.append(metric)
            missing = None if has_tokenizer else metric.without_tokenizer(adapter_spec)
            if missing:
                left_out.append(f"{name}: {missing} is left out: it needs {_OPTION}")
    return Plan(possible, left_out)


def evaluate(
    metrics: Sequence[Metric | ForeignMetric],
    source: ScenarioState | StateFile,
    metric_service: TokenizerService | None,
    sinks: Sequence[Sink],
    parallelism: int = DEFAULT_PARALLELISM,
    progress: Callable[[int], None] = lambda _: None,
    unsafe_code: UnsafeCode | None = None,
) -> Evaluated:
    """Compute metrics over a run's requests.

    A state on disk is read once and never held as a whole, unless its requests are not sorted by trial and instance or
    a metric of the installed HELM wants all of it.

    Args:
        metrics: What to compute.
        source: The requests with their results.
        metric_service: Answers HELM's tokenize requests; ``None`` where no tokenizer is at hand.
        sinks: One for each metric; takes its per-instance statistics in order.
        parallelism: Processes that may score at the same time. It changes no value.
        progress: Told now and then how many requests have been taken.
        unsafe_code: Permission to run what the model wrote, for scores that do.

    Raises:
        MissingDependencyError: A metric needs a tokenizer and there is none.
        UnsupportedTaskError: A metric runs what the model wrote, and nobody has allowed that.
        DataNotFoundError: A metric runs what the model wrote, and there are no tests.
        FileFormatError: The state is damaged or contradicts itself.
    """
    for metric in metrics:
        if isinstance(metric, Metric):
            check_possible(metric, source.adapter_spec, metric_service is not None)
            check_permission(metric, unsafe_code)
            check_tests(metric, source, unsafe_code)
        else:
            metric.check_permission(unsafe_code)
    if isinstance(source, StateFile) and any(isinstance(metric, ForeignMetric) for metric in metrics):
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
    metrics: Sequence[Metric | ForeignMetric]
    service: TokenizerService | None
    sinks: Sequence[Sink]
    parallelism: int
    progress: Callable[[int], None]
    unsafe_code: UnsafeCode | None

    def as_read(self, source: StateFile) -> Evaluated:
        with ExitStack() as stack:
            evaluations = self._begin(source.adapter_spec, source.mentions("perturbation"), stack)
            tap = _Tap(evaluations, self.progress)
            unanswered = add_groups(evaluations, groups_as_read(tap.watch(source), source.adapter_spec))
            return self._finish(evaluations, unanswered, tap)

    def in_memory(self, state: ScenarioState) -> Evaluated:
        perturbed = any(one.instance.perturbation is not None for one in state.request_states)
        with ExitStack() as stack:
            evaluations = self._begin(state.adapter_spec, perturbed, stack, state)
            tap = _Tap(evaluations, self.progress)
            for _ in tap.watch(state.request_states):
                pass
            unanswered = add_groups(evaluations, groups_in_memory(state))
            return self._finish(evaluations, unanswered, tap)

    def _begin(
        self, adapter_spec: AdapterSpec, perturbed: bool, stack: ExitStack, state: ScenarioState | None = None
    ) -> list[_Guarded]:
        tokens = token_counter(self.service, adapter_spec)
        evaluations = []
        for metric, sink in zip(self.metrics, self.sinks, strict=True):
            evaluation: Evaluation
            if isinstance(metric, ForeignMetric):
                evaluation = _Foreign(metric, cast("ScenarioState", state), self, sink)
            else:
                setting = Setting(adapter_spec, tokens, perturbed, self.parallelism, sink, self.unsafe_code)
                evaluation = metric.begin(setting)
            evaluations.append(_Guarded(evaluation, sink))
            stack.callback(evaluation.close)
        return evaluations

    def _finish(self, evaluations: list[_Guarded], unanswered: list[str], tap: _Tap) -> Evaluated:
        by_metric = [evaluation.finish() for evaluation in evaluations]
        stats = [stat for stats in by_metric for stat in stats]
        unscored = [*unanswered, *(line for evaluation in evaluations for line in evaluation.unscored)]
        failed = [
            str(one.failure) if isinstance(metric, ForeignMetric) else f"{type(metric).__name__} fails: {one.failure}"
            for metric, one in zip(self.metrics, evaluations, strict=True)
            if one.failure is not None
        ]
        return Evaluated(
            stats, list(dict.fromkeys(unscored)), tap.count, self._nothing_measured(by_metric, tap), failed
        )

    def _nothing_measured(self, by_metric: list[list[Stat]], tap: _Tap) -> str | None:
        if not tap.count:
            return "the run has no requests"
        if not tap.num_answered:
            return "not one request has a result, so nothing could be scored"
        of_answers = [
            stats for metric, stats in zip(self.metrics, by_metric, strict=True) if metric.needs_answers
        ] or by_metric
        is_scored = any(stat.count for stats in of_answers for stat in stats)
        return None if is_scored else "not one request could be scored"


class _Foreign(Evaluation):
    """A metric of the installed HELM, which takes all requests at once when they have been looked at."""

    def __init__(self, metric: ForeignMetric, state: ScenarioState, job: _Job, sink: Sink) -> None:
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


class _Guarded(Evaluation):
    """A metric at work, which takes no other with it if it fails: it has no statistics then."""

    def __init__(self, evaluation: Evaluation, sink: Sink) -> None:
        self.failure: UsageError | None = None
        self._evaluation = evaluation
        self._sink = sink

    @property
    def unscored(self) -> list[str]:  # type: ignore[override]  # nobody sets it
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
        if isinstance(error, FileFormatError):  # that requests contradict each other is no fault of the metric's
            raise error
        self.failure = error
        self._sink.reset()


class _Tap:
    """Shows every request to the evaluations on its way into a group."""

    def __init__(self, evaluations: Sequence[Evaluation], progress: Callable[[int], None]) -> None:
        self.count = 0
        self.num_answered = 0
        self._evaluations = evaluations
        self._progress = progress

    def watch(self, states: StateFile | list[RequestState]) -> Iterator[RequestState]:
        for state in states:
            for evaluation in self._evaluations:
                evaluation.add_state(state)
            self.count += 1
            self.num_answered += state.is_answered
            if self.count % _PROGRESS_EVERY == 0:
                self._progress(self.count)
            yield state
        self._progress(self.count)
