"""``LanguageModelingMetric``: the perplexity of given texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from assay.helm.metrics.base import Evaluation, Metric, Setting
from assay.helm.metrics.requests import language_modeling_statistics, perplexity, request_statistics
from assay.helm.metrics.table import ContextTotals, Named, TrialTable, Value
from assay.helm.stats import MetricContext, PerInstanceStats, Stat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.helm.adaptation import AdapterSpec, RequestState
    from assay.helm.scenario import Instance


class LanguageModelingMetric(Metric):
    """Log probability, perplexity and costs of a language modelling run, where a long text is several requests."""

    handles_language_modeling: ClassVar[bool] = True

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)

    def begin(self, setting: Setting) -> Evaluation:
        """Start the evaluation of a run."""
        return _Evaluation(setting)

    def left_out_without_tokenizer(self, adapter_spec: AdapterSpec) -> str | None:  # noqa: ARG002
        """The counts that depend on the prompt's tokens."""
        return "num_prompt_tokens and num_output_tokens"


class _Evaluation(Evaluation):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self._setting = setting
        self._table = LanguageModelingTable()

    def add_state(self, state: RequestState) -> None:
        if state.is_answered:
            statistics = request_statistics(self._setting.adapter_spec, state, self._setting.tokens)
            statistics += language_modeling_statistics(state)
            self._setting.emit(self._table.add_named(0, state.instance, statistics))

    def finish(self) -> list[Stat]:
        return self._table.finish()


class LanguageModelingTable(TrialTable):
    """Collects a run's requests, several for an instance, into its statistics; there is only one trial."""

    def __init__(self) -> None:
        super().__init__(self._perplexity_and_size)
        self._ids: dict[MetricContext, set[str | None]] = {}

    def add(self, trial: int, instance: Instance, names: tuple[str, ...], values: Sequence[Value]) -> PerInstanceStats:
        """Add one request's statistics."""
        self._ids.setdefault(MetricContext.from_instance(instance), set()).add(instance.id)
        return super().add(trial, instance, names, values)

    def _perplexity_and_size(self, totals: ContextTotals) -> Named:
        return [*perplexity(totals), ("num_instances", len(self._ids[totals.context]))]
