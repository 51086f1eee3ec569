"""``BasicReferenceMetric``: which reference has the highest probability, with a request for each?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast

from assay.errors import SpecificationError
from assay.helm.metrics.base import Evaluation, Metric, Setting
from assay.helm.metrics.requests import request_statistics
from assay.helm.metrics.table import Named, Perturbations, TrialTable, Value
from assay.helm.stats import Moments, Stat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.helm.adaptation import AdapterSpec, RequestState
    from assay.helm.groups import Group
    from assay.helm.tokenization import TokenCounter

_MEAN_METHODS = ("multiple_choice_separate_original", "ranking_binary")
_CALIBRATED_METHOD = "multiple_choice_separate_calibrated"


class BasicReferenceMetric(Metric):
    """Accuracy if each reference has its own request."""

    def begin(self, setting: Setting) -> Evaluation:
        """Start the evaluation of a run."""
        return _Evaluation(setting)

    def is_computable(self, adapter_spec: AdapterSpec, has_tokenizer: bool) -> bool:
        """Only a tokenizer can tell which of a request's tokens are the reference's."""
        return has_tokenizer or not scores_references(adapter_spec)


def scores_references(adapter_spec: AdapterSpec) -> bool:
    """Whether a run has a request for each reference."""
    return adapter_spec.method in (*_MEAN_METHODS, _CALIBRATED_METHOD)


class _Evaluation(Evaluation):
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self._setting = setting
        self._table = TrialTable(perturbations=Perturbations.given(setting.has_perturbations))

    def add_group(self, group: Group) -> None:
        if not group.references:
            return
        choice = choose(self._setting, group)
        if isinstance(choice, str):
            self.unscored.append(choice)
            return
        merged: dict[str, Moments] = {}
        for state in group.references:
            for name, value in request_statistics(self._setting.adapter_spec, state, self._setting.tokens):
                merged.setdefault(name, Moments()).add(value)
        share = len(choice.correct & choice.likeliest) / len(choice.likeliest)
        chosen: Named = [
            ("max_prob", choice.probability),
            ("exact_match", share),
            ("predicted_index", min(choice.likeliest)),
        ]
        names = (*merged, *(name for name, _ in chosen))
        values: list[Value] = [*merged.values(), *(value for _, value in chosen)]
        self._setting.emit(self._table.add(group.trial, group.instance, names, values))

    def finish(self) -> list[Stat]:
        return self._table.finish()


class Choice(NamedTuple):
    """The references with the highest score."""

    likeliest: frozenset[int]
    """More than one if they tie."""
    correct: frozenset[int]
    probability: float
    """The highest score's softmax."""


def choose(setting: Setting, group: Group) -> Choice | str:
    """The model's choice for an instance, or the reason why there is none.

    A reference's score is the mean log probability of its tokens. In a calibrated run it is their sum minus the sum
    for the same tokens without the question.

    Raises:
        SpecificationError: The run's method has no requests for references.
    """
    method = setting.adapter_spec.method
    if not scores_references(setting.adapter_spec):
        raise SpecificationError(f"the run has requests for references, but its method is {method!r}")
    sums: dict[tuple[int, str], tuple[int | float, int]] = {}
    for state in group.references:
        logprob, num_tokens = _answer_logprob(state, cast("TokenCounter", setting.tokens))
        if math.isnan(logprob):
            return f"{group.label}: a log probability of reference {state.reference_index} is not a number"
        sums[state.reference_index or 0, state.request_mode or "original"] = (logprob, num_tokens)
    modes = ("original", "calibration") if method == _CALIBRATED_METHOD else ("original",)
    scores: list[float] = []
    for index in range(len(group.instance.references)):
        if any((index, mode) not in sums for mode in modes):
            return f"{group.label}: reference {index} has no request"
        logprob, num_tokens = sums[index, "original"]
        if method == _CALIBRATED_METHOD:
            scores.append(logprob - sums[index, "calibration"][0])
        elif num_tokens == 0:
            return f"{group.label}: reference {index} has no tokens"
        else:
            scores.append(logprob / num_tokens)
    best = max(scores)
    return Choice(
        frozenset(index for index, score in enumerate(scores) if score >= best),
        frozenset(index for index, reference in enumerate(group.instance.references) if reference.is_correct),
        _largest_softmax(scores),
    )


def _answer_logprob(state: RequestState, tokens: TokenCounter) -> tuple[int | float, int]:
    reference = state.instance.references[state.reference_index or 0].output.text
    num_tokens = tokens.count_strings(f" {reference}")  # as in the prompt, with a space before it
    answer = state.answer.completions[0].tokens[-num_tokens:]
    return sum(token.logprob for token in answer), num_tokens


def _largest_softmax(scores: Sequence[float]) -> float:
    import numpy as np

    with np.errstate(invalid="ignore"):
        exponentials = np.exp(np.array(scores) - max(scores))
        return float(np.max(exponentials / np.sum(exponentials)))
