"""The interface of metrics, and the checks before they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from assay.errors import DataNotFoundError, MissingDependencyError, UnsupportedTaskError
from assay.helm.groups import LANGUAGE_MODELING, Group, groups_in_memory
from assay.helm.scoring.code import TESTS_KEY, UnsafeCode
from assay.helm.stats import MetricResult, PerInstanceStats, Stat, copied_on_read
from assay.helm.tokenization import TokenCounter, TokenizerService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from assay.helm.adaptation import AdapterSpec, RequestState, ScenarioState
    from assay.helm.state_file import StateFile

DEFAULT_PARALLELISM = 4


@dataclass(frozen=True)
class Setting:
    """What an evaluation needs to know besides the requests."""

    adapter_spec: AdapterSpec
    tokens: TokenCounter | None
    """``None`` without a tokenizer."""
    has_perturbations: bool
    parallelism: int
    emit: Callable[[PerInstanceStats], None]
    """Receives each instance's statistics, in order."""
    unsafe_code: UnsafeCode | None = None
    """Permission to run code written by the model."""


class Evaluation(ABC):
    """The computation of a metric for one run, whose requests arrive one by one."""

    def __init__(self) -> None:
        self.unscored: list[str] = []
        """For each answered instance that cannot be scored, a line with the reason."""

    def add_state(self, state: RequestState) -> None:  # noqa: B027 - few evaluations need it
        """Process the next request, in the order of the file."""

    def add_group(self, group: Group) -> None:  # noqa: B027 - few evaluations need it
        """Process the next instance of a trial with its requests."""

    @abstractmethod
    def finish(self) -> list[Stat]:
        """The run's statistics."""

    def close(self) -> None:  # noqa: B027 - few evaluations need it
        """Release all resources, even if the evaluation is not finished."""


class Metric(ABC):
    """One of HELM's metrics."""

    handles_language_modeling: ClassVar[bool] = False
    """Whether the metric takes language modelling runs, which most of HELM's metrics refuse."""
    needs_answers: ClassVar[bool] = True
    """Whether the metric scores answers; False for metrics of the requests alone."""

    @property
    def code_scores(self) -> tuple[str, ...]:
        """Scores that run code written by the model."""
        return ()

    @abstractmethod
    def begin(self, setting: Setting) -> Evaluation:
        """Start the evaluation of a run."""

    def left_out_without_tokenizer(self, adapter_spec: AdapterSpec) -> str | None:  # noqa: ARG002 - for overriding methods
        """The statistics that the metric leaves out without a tokenizer, or ``None`` if it has all."""
        return None

    def is_computable(self, adapter_spec: AdapterSpec, has_tokenizer: bool) -> bool:  # noqa: ARG002 - as above
        """Whether the metric can be computed at all for a run."""
        return True

    def evaluate(
        self,
        scenario_state: ScenarioState,
        metric_service: TokenizerService | None,
        eval_cache_path: str | None = None,  # noqa: ARG002 - HELM's interface; nothing here needs a cache
        parallelism: int = DEFAULT_PARALLELISM,
        unsafe_code: UnsafeCode | None = None,
    ) -> MetricResult:
        """Compute the metric.

        Args:
            scenario_state: The run's requests and results.
            metric_service: Answers HELM's tokenization requests; ``None`` without a tokenizer.
            eval_cache_path: Not used.
            parallelism: Maximum number of scoring processes. It changes no value.
            unsafe_code: Permission to run code written by the model.

        Raises:
            MissingDependencyError: The metric needs a tokenizer.
            UnsupportedTaskError: A score runs code written by the model without permission.
            DataNotFoundError: A score runs code written by the model, and there are no tests.
            FileFormatError: The requests contradict each other.
        """
        check_computable(self, scenario_state.adapter_spec, metric_service is not None)
        check_permission(self, unsafe_code)
        check_tests(self, scenario_state, unsafe_code)
        per_instance: list[PerInstanceStats] = []

        def keep(record: PerInstanceStats) -> None:
            per_instance.append(copied_on_read(record))

        states = scenario_state.request_states
        setting = Setting(
            scenario_state.adapter_spec,
            token_counter(metric_service, scenario_state.adapter_spec),
            any(state.instance.perturbation is not None for state in states),
            parallelism,
            keep,
            unsafe_code,
        )
        evaluation = self.begin(setting)
        try:
            for state in states:
                evaluation.add_state(state)
            unanswered = add_groups([evaluation], groups_in_memory(scenario_state))
            stats = evaluation.finish()
        finally:
            evaluation.close()
        return MetricResult(stats, per_instance, [*unanswered, *evaluation.unscored])


def add_groups(evaluations: Iterable[Evaluation], groups: Iterable[Group]) -> list[str]:
    """Pass groups to evaluations, and return the groups' lines for what cannot be scored."""
    left_out: list[str] = []
    for group in groups:
        left_out += group.left_out
        if group.is_counted:
            for evaluation in evaluations:
                evaluation.add_group(group)
    return left_out


def check_computable(metric: Metric, adapter_spec: AdapterSpec, has_tokenizer: bool) -> None:
    """Refuse a metric that cannot be computed for a run.

    Raises:
        MissingDependencyError: The metric needs a tokenizer.
        UnsupportedTaskError: The metric does not take language modelling runs.
    """
    name = type(metric).__name__
    if adapter_spec.method == LANGUAGE_MODELING and not metric.handles_language_modeling:
        raise UnsupportedTaskError(f"{name} does not take language modelling runs; use LanguageModelingMetric")
    if not metric.is_computable(adapter_spec, has_tokenizer):
        raise MissingDependencyError(f"{name} needs a tokenizer and was given none")


def check_permission(metric: Metric, unsafe_code: UnsafeCode | None) -> None:
    """Refuse scores that run code written by the model, unless that is allowed.

    Raises:
        UnsupportedTaskError: It is not allowed.
    """
    if metric.code_scores and unsafe_code is None:
        raise UnsupportedTaskError(
            f"the score {metric.code_scores[0]!r} runs code that the model wrote (in a sandbox); "
            "--confirm-run-unsafe-code, or unsafe_code=UnsafeCode() in Python, allows it"
        )


def check_tests(metric: Metric, source: ScenarioState | StateFile, unsafe_code: UnsafeCode | None) -> None:
    """Refuse scores that run code written by the model if there are no tests for it.

    Raises:
        DataNotFoundError: There are no tests.
    """
    has_tests = unsafe_code is not None and unsafe_code.tests is not None
    if metric.code_scores and not has_tests and not source.mentions(TESTS_KEY):
        raise DataNotFoundError(
            f"the score {metric.code_scores[0]!r} needs the problems' tests, which HELM does not save with a run; "
            "--code-tests takes HumanEval.jsonl, which HELM keeps in benchmark_output/scenarios/code"
        )


def token_counter(service: TokenizerService | None, adapter_spec: AdapterSpec) -> TokenCounter | None:
    """A token counter for a run's model; ``None`` without a tokenizer."""
    return None if service is None else TokenCounter(service, adapter_spec.model_deployment or adapter_spec.model)
