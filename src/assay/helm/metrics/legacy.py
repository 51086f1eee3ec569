"""Metrics of HELM 0.2 that today's HELM no longer has."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from assay.helm.groups import LANGUAGE_MODELING, Group
from assay.helm.metrics.base import Evaluation, Metric, Setting
from assay.helm.metrics.calibration import calibration_with_count
from assay.helm.metrics.generation import AnswerEvaluation, BasicGenerationMetric
from assay.helm.metrics.language_modeling import LanguageModelingTable
from assay.helm.metrics.reference import Choice, choose, scores_references
from assay.helm.metrics.requests import perplexity, request_statistics
from assay.helm.metrics.table import Named, Perturbations, TrialTable
from assay.helm.stats import MetricName, Moments, PerInstanceStats, Stat

if TYPE_CHECKING:
    from assay.helm.adaptation import AdapterSpec, Request, RequestState
    from assay.helm.tokenization import TokenCounter

_GOOSEAI_FREE_TOKENS = 25
_BILLED_FOR_OUTPUT = ("ai21", "cohere")


class BasicMetric(BasicGenerationMetric):
    """HELM 0.2's basic metric: generations, references and language modelling in one."""

    handles_language_modeling: ClassVar[bool] = True

    def begin(self, setting: Setting) -> Evaluation:
        """Start the evaluation of a run."""
        if setting.adapter_spec.method == LANGUAGE_MODELING:
            return _LanguageModeling(self.names, setting)
        return _Basic(self.names, setting)

    def is_computable(self, adapter_spec: AdapterSpec, has_tokenizer: bool) -> bool:
        """Only a tokenizer can tell which of a request's tokens are the reference's."""
        return has_tokenizer or not scores_references(adapter_spec)


class _Basic(AnswerEvaluation):
    def __init__(self, names: tuple[str, ...], setting: Setting) -> None:
        table = TrialTable(perplexity, calibration_with_count, Perturbations.given(setting.has_perturbations))
        super().__init__(names, setting, table)

    def add_group(self, group: Group) -> None:
        if group.generation is not None:
            self.add_answer(group)
            return
        statistics = self.further_statistics(group)
        if statistics:
            self.flush()  # keep the order of the instances
            self.add_statistics(group, statistics)

    def further_statistics(self, group: Group) -> Named:
        """Statistics of the references: costs of the last request only, and a tie counts as right."""
        if not group.references:
            return []
        choice = choose(self.setting, group)
        if isinstance(choice, str):
            self.unscored.append(choice)
            return []
        last = request_statistics(self.setting.adapter_spec, group.references[-1], self.setting.tokens)
        return [*last, *_chosen(choice)]


def _chosen(choice: Choice) -> Named:
    return [
        ("max_prob", choice.probability),
        ("exact_match", float(bool(choice.likeliest & choice.correct))),
        ("predicted_index", min(choice.likeliest)),
    ]


class _LanguageModeling(AnswerEvaluation):
    def __init__(self, names: tuple[str, ...], setting: Setting) -> None:
        super().__init__(names, setting, LanguageModelingTable())

    def add_state(self, state: RequestState) -> None:
        if state.is_answered:
            self.add_answer(Group(0, state.instance, state, [], ()))


class TokensMetric(Metric):
    """The cost of a run's requests that HELM 0.2 expects from the model's provider."""

    handles_language_modeling: ClassVar[bool] = True
    needs_answers: ClassVar[bool] = False

    def begin(self, setting: Setting) -> Evaluation:
        """Start the evaluation of a run."""
        return _TokenCosts(setting)

    def left_out_without_tokenizer(self, adapter_spec: AdapterSpec) -> str | None:
        """The cost, if the provider is OpenAI, which bills for prompts."""
        return "estimated_num_tokens_cost" if _provider(adapter_spec.model) == "openai" else None


class _TokenCosts(Evaluation):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self._setting = setting
        self._sums: dict[str, Moments] = {}
        self._num_requests = 0

    def add_state(self, state: RequestState) -> None:
        request = state.request
        cost = estimated_cost(request, self._setting.tokens)
        statistics: Named = [
            ("num_completions", request.num_completions),
            ("max_num_output_tokens", request.num_completions * request.max_tokens),
        ]
        if cost is not None:
            statistics.insert(0, ("estimated_num_tokens_cost", cost))
        self._num_requests += 1
        for name, value in statistics:
            self._sums.setdefault(name, Moments()).add(value)
        self._setting.emit(
            PerInstanceStats(
                instance_id=state.instance.id or "",
                perturbation=state.instance.perturbation,
                train_trial_index=state.train_trial_index,
                stats=[Stat.of(MetricName(name), value) for name, value in statistics],
            )
        )

    def finish(self) -> list[Stat]:
        sums = {**self._sums, "num_requests": Moments.of(self._num_requests)}
        return [moments.to_stat(MetricName(name)) for name, moments in sums.items()]


def estimated_cost(request: Request, tokens: TokenCounter | None) -> int | None:
    """The largest number of tokens that the provider bills; ``None`` if a tokenizer is needed and missing."""
    provider = _provider(request.model)
    output = request.num_completions * request.max_tokens
    if provider in _BILLED_FOR_OUTPUT:
        return output
    if provider not in ("openai", "gooseai"):
        return 0
    # OpenAI bills for the prompt, and again if it is echoed; GooseAI only if it is echoed.
    prompts = (provider == "openai") + request.echo_prompt
    if prompts and tokens is None:
        return None
    cost = output + (prompts * tokens.count_ids(request.prompt) if prompts and tokens is not None else 0)
    return max(cost - _GOOSEAI_FREE_TOKENS, 0) if provider == "gooseai" else cost


def _provider(model: str) -> str:
    return model.split("/")[0]
