"""``BasicGenerationMetric``: scores of what a model wrote."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from assay.errors import SpecificationError
from assay.helm.metrics.base import Evaluation, Metric, Setting
from assay.helm.metrics.calibration import calibration
from assay.helm.metrics.requests import language_modeling_statistics, perplexity, request_statistics
from assay.helm.metrics.table import Named, Perturbations, TrialTable
from assay.helm.scoring.pool import Scores, ScoringPool
from assay.helm.scoring.scorer import Answer, Scorer, check_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from assay.helm.adaptation import AdapterSpec, GeneratedOutput, RequestState
    from assay.helm.groups import Group
    from assay.helm.stats import Stat

_BATCH = 64
_BATCHES_AHEAD = 3


class BasicGenerationMetric(Metric):
    """Scores that need no knowledge of the domain, perplexity, calibration and costs.

    Args:
        names: Scores to compute, keys of `assay.helm.scoring.scorer.SCORES`.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        check_names(names)
        self.names = tuple(names)

    def begin(self, setting: Setting) -> Evaluation:
        """Start to evaluate a run."""
        return _Evaluation(self.names, setting)

    def without_tokenizer(self, adapter_spec: AdapterSpec) -> str | None:  # noqa: ARG002
        """The counts that depend on the prompt's tokens are left out."""
        return "num_prompt_tokens and what follows from it"


class AnswerEvaluation(Evaluation):
    """Fills a table with what there is to know of each answer: costs, scores and log probabilities.

    Args:
        names: Scores to compute.
        setting: What else to know.
        table: Takes the statistics, in the order of the answers.
    """

    def __init__(self, names: tuple[str, ...], setting: Setting, table: TrialTable) -> None:
        super().__init__()
        self.setting = setting
        self._scores = _AnswerScores(names, setting)
        self._table = table

    def add_answer(self, group: Group) -> None:
        """Take a group whose generation was answered. Its scores may come later."""
        reason = _unscorable(group)
        if reason is not None:
            self.unscored.append(reason)
            return
        self._scores.add(group)
        self._collect(self._scores.ready())

    def catch_up(self) -> None:
        """Wait for the scores of all answers so far."""
        self._collect(self._scores.rest())

    def add_statistics(self, group: Group, statistics: Named) -> None:
        """Count one group."""
        self.setting.emit(self._table.add_named(group.trial, group.instance, statistics))

    def further_statistics(self, group: Group) -> Named:  # noqa: ARG002 - for those that have some
        """What a metric adds to the statistics of a group's answer."""
        return []

    def finish(self) -> list[Stat]:
        """The run's statistics."""
        self.catch_up()
        return self._table.finish()

    def close(self) -> None:
        """Stop the processes that score."""
        self._scores.close()

    def _collect(self, scored: list[tuple[Group, Named]]) -> None:
        for group, scores in scored:
            state = group.answer
            statistics = [
                *request_statistics(self.setting.adapter_spec, state, self.setting.tokens),
                *scores,
                *language_modeling_statistics(state),
                *self.further_statistics(group),
            ]
            self.add_statistics(group, statistics)


class _Evaluation(AnswerEvaluation):
    def __init__(self, names: tuple[str, ...], setting: Setting) -> None:
        table = TrialTable(perplexity, calibration, Perturbations.given(setting.has_perturbations))
        super().__init__(names, setting, table)

    def add_group(self, group: Group) -> None:
        if group.generation is not None:
            self.add_answer(group)


def _unscorable(group: Group) -> str | None:
    """Why an answer cannot be compared with the references, if it cannot."""
    references = group.instance.references
    if references and not any(reference.is_correct for reference in references):
        return f"instance {group.instance.id}, trial {group.trial}: no reference is tagged correct"
    return None


class _AnswerScores:
    """Scores groups' answers in batches, which processes may share, and gives them back in order."""

    def __init__(self, names: tuple[str, ...], setting: Setting) -> None:
        self._spec = setting.adapter_spec
        self._scorer = Scorer(names, setting.adapter_spec.num_outputs)
        self._pool = ScoringPool(self._scorer, setting.parallelism)
        self._batch: list[tuple[Group, Answer | None]] = []
        self._pending: deque[tuple[list[tuple[Group, Answer | None]], Future[Scores]]] = deque()

    def add(self, group: Group) -> None:
        """Take a group whose generation was answered."""
        self._batch.append((group, _answer_of(self._spec, group)))
        if len(self._batch) >= _BATCH:
            self._submit()

    def ready(self) -> list[tuple[Group, Named]]:
        """Groups that are scored, with their scores, as far as it does not pay to wait."""
        return self._scored(_BATCHES_AHEAD * self._pool.width)

    def rest(self) -> list[tuple[Group, Named]]:
        """All remaining groups with their scores."""
        self._submit()
        return self._scored(0)

    def close(self) -> None:
        """Stop the processes."""
        self._pool.close()

    def _submit(self) -> None:
        if not self._batch:
            return
        answers = [answer for _, answer in self._batch if answer is not None]
        self._pending.append((self._batch, self._pool.submit(answers)))
        self._batch = []

    def _scored(self, ahead: int) -> list[tuple[Group, Named]]:
        scored: list[tuple[Group, Named]] = []
        while len(self._pending) > ahead:
            batch, future = self._pending.popleft()
            scores = iter(future.result())
            scored += [(group, [] if answer is None else self._named(group, next(scores))) for group, answer in batch]
        return scored

    def _named(self, group: Group, scores: Sequence[int | float | None]) -> Named:
        confidence = ("max_prob", _probability(_likeliest_first(group.answer)[0]))
        return [confidence, *zip(self._scorer.stat_names, scores, strict=True)]


def _answer_of(adapter_spec: AdapterSpec, group: Group) -> Answer | None:
    """What a group is scored on; ``None`` where the instance has no references.

    Raises:
        SpecificationError: The adapter's output mapping pattern is no regular expression.
    """
    state = group.answer
    if not group.instance.references:
        return None
    golds = tuple(reference.output.text for reference in group.instance.all_correct_references)
    predictions = [completion.text.strip() for completion in _likeliest_first(state)]
    if state.output_mapping is not None:
        if adapter_spec.output_mapping_pattern:
            predictions = [_extract(adapter_spec.output_mapping_pattern, text) for text in predictions]
        predictions = [state.output_mapping.get(text, "") for text in predictions]
    return Answer(golds, tuple(predictions))


def _likeliest_first(state: RequestState) -> list[GeneratedOutput]:
    return sorted(state.answer.completions, key=lambda completion: -completion.logprob)


def _probability(completion: GeneratedOutput) -> float:
    import numpy as np

    with np.errstate(over="ignore"):
        return float(np.exp(completion.logprob))  # numpy's and Python's exponentials differ in the last bit


def _extract(pattern: str, text: str) -> str:
    try:
        match = re.search(pattern, text)
    except re.error as error:
        raise SpecificationError(f"output_mapping_pattern {pattern!r} is no regular expression: {error}") from None
    if match is None:
        return ""
    return str(match.group(1) if match.groups() else match.group(0))
