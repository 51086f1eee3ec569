"""What every metric offers, and how one is run over a scenario state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from assay.errors import DataNotFoundError, MissingDependencyError, UnsupportedTaskError
from assay.helm.groups import LANGUAGE_MODELING, Group, groups_in_memory
from assay.helm.scoring.code import TESTS_KEY, UnsafeCode
from assay.helm.stats import MetricResult, PerInstanceStats, Stat, lent
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
    """``None`` where no tokenizer is at hand."""
    has_perturbations: bool
    parallelism: int
    emit: Callable[[PerInstanceStats], None]
    """Takes each instance's statistics, in order."""
    unsafe_code: UnsafeCode | None = None
    """Permission to run what the model wrote."""


class Evaluation(ABC):
    """A metric at work on a run whose requests come one after the other."""

    def __init__(self) -> None:
        self.unscored: list[str] = []
        """One line for each instance that cannot be scored although its requests were answered."""

    def add_state(self, state: RequestState) -> None:  # noqa: B027 - few evaluations need it
        """Take the next request, in the order of the file."""

    def add_group(self, group: Group) -> None:  # noqa: B027 - few evaluations need it
        """Take the next instance of a trial with its requests."""

    @abstractmethod
    def finish(self) -> list[Stat]:
        """The run's statistics."""

    def close(self) -> None:  # noqa: B027 - few evaluations need it
        """Let go of whatever the evaluation holds, finished or not."""


class Metric(ABC):
    """One of HELM's metrics."""

    handles_language_modeling: ClassVar[bool] = False
    """HELM's other metrics refuse language modelling runs."""
    needs_answers: ClassVar[bool] = True
    """Whether it says something of answers, and not of requests whatever became of them."""

    @property
    def code_scores(self) -> tuple[str, ...]:
        """Scores that run what the model wrote."""
        return ()

    @abstractmethod
    def begin(self, setting: Setting) -> Evaluation:
        """Start to evaluate a run."""

    def without_tokenizer(self, adapter_spec: AdapterSpec) -> str | None:  # noqa: ARG002 - for those that depend on it
        """What the metric leaves out if it is given no tokenizer, or ``None`` if nothing."""
        return None

    def is_possible(self, adapter_spec: AdapterSpec, has_tokenizer: bool) -> bool:  # noqa: ARG002 - as above
        """Whether the metric gives anything at all in this setting."""
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
            metric_service: Answers HELM's tokenize requests; ``None`` where no tokenizer is at hand.
            eval_cache_path: Not used.
            parallelism: Processes that may score at the same time. It changes no value.
            unsafe_code: Permission to run what the model wrote, for scores that do.

        Raises:
            MissingDependencyError: Nothing can be computed without a tokenizer.
            UnsupportedTaskError: A score runs what the model wrote, and nobody has allowed that.
            DataNotFoundError: A score runs what the model wrote, and there are no tests.
            FileFormatError: The requests contradict each other.
        """
        check_possible(self, scenario_state.adapter_spec, metric_service is not None)
        check_permission(self, unsafe_code)
        check_tests(self, scenario_state, unsafe_code)
        per_instance: list[PerInstanceStats] = []

        def keep(record: PerInstanceStats) -> None:
            per_instance.append(lent(record))

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
    """Feed groups to evaluations; gives the lines for what of them cannot be scored."""
    left_out: list[str] = []
    for group in groups:
        left_out += group.left_out
        if group.is_counted:
            for evaluation in evaluations:
                evaluation.add_group(group)
    return left_out


def check_possible(metric: Metric, adapter_spec: AdapterSpec, has_tokenizer: bool) -> None:
    """Refuse a metric that can give nothing.

    Raises:
        MissingDependencyError: It needs a tokenizer.
        UnsupportedTaskError: It is not made for language modelling runs.
    """
    name = type(metric).__name__
    if adapter_spec.method == LANGUAGE_MODELING and not metric.handles_language_modeling:
        raise UnsupportedTaskError(f"{name} is not made for language modelling runs; LanguageModelingMetric is")
    if not metric.is_possible(adapter_spec, has_tokenizer):
        raise MissingDependencyError(f"{name} needs a tokenizer and was given none")


def check_permission(metric: Metric, unsafe_code: UnsafeCode | None) -> None:
    """Refuse scores that run what the model wrote, unless that was allowed.

    Raises:
        UnsupportedTaskError: It was not.
    """
    if metric.code_scores and unsafe_code is None:
        raise UnsupportedTaskError(
            f"the score {metric.code_scores[0]!r} runs code that the model wrote (in a sandbox); "
            "--confirm-run-unsafe-code, or unsafe_code=UnsafeCode() in Python, allows it"
        )


def check_tests(metric: Metric, source: ScenarioState | StateFile, unsafe_code: UnsafeCode | None) -> None:
    """Refuse scores that run what the model wrote where there is nothing to test it with.

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
    """Counts tokens for a run's model."""
    return None if service is None else TokenCounter(service, adapter_spec.model_deployment or adapter_spec.model)
