"""``BasicGenerationMetric``: scores of generated answers."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import SpecificationError
from assay.helm.metrics.base import Evaluation, Metric, Setting
from assay.helm.metrics.calibration import calibration
from assay.helm.metrics.requests import language_modeling_statistics, perplexity, request_statistics
from assay.helm.metrics.table import Named, Perturbations, TrialTable
from assay.helm.scoring.code import CODE_SCORES, CodeScorer
from assay.helm.scoring.pool import Scores, ScoringPool
from assay.helm.scoring.scorer import AnswerTexts, Scorer, check_names, stat_names
from assay.helm.structs import plain_number
from assay.scoring.deadline import SCORING_SECONDS, Deadline, DeadlineError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from assay.helm.adaptation import AdapterSpec, GeneratedOutput, RequestState
    from assay.helm.groups import Group
    from assay.helm.stats import Stat
    from assay.sandbox.program import RunResult

_BATCH = 64
_BATCHES_AHEAD = 3


class BasicGenerationMetric(Metric):
    """Domain-independent scores, perplexity, calibration and costs.

    Args:
        names: Scores to compute, keys of `assay.helm.scoring.scorer.SCORES`.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        check_names(names)
        self.names = tuple(names)

    def begin(self, setting: Setting) -> Evaluation:
        """Start the evaluation of a run."""
        return _Evaluation(self.names, setting)

    @property
    def code_scores(self) -> tuple[str, ...]:
        """The metric's scores that run code written by the model."""
        return code_scores(self.names)

    def left_out_without_tokenizer(self, adapter_spec: AdapterSpec) -> str | None:  # noqa: ARG002
        """The counts that depend on the prompt's tokens."""
        return "num_prompt_tokens and what depends on it"


class AnswerEvaluation(Evaluation):
    """Fills a table with the costs, scores and log probabilities of each answer.

    Args:
        names: Scores to compute.
        setting: The run's settings.
        table: Receives the statistics, in the order of the answers.
    """

    def __init__(self, names: tuple[str, ...], setting: Setting, table: TrialTable) -> None:
        super().__init__()
        self.setting = setting
        self._scores = _AnswerScores(names, setting)
        self._table = table

    def add_answer(self, group: Group) -> None:
        """Add a group with an answer. Its scores may be computed later."""
        reason = _unscorable(group) or self._scores.unscorable(group)
        if reason is not None:
            self.unscored.append(reason)
            return
        try:
            self._scores.add(group)
        except DeadlineError as error:
            self.unscored.append(f"{group.label}: its answer is matched with output_mapping_pattern, and {error}")
        self._collect(self._scores.ready())

    def flush(self) -> None:
        """Wait for the scores of all answers so far."""
        self._collect(self._scores.rest())

    def add_statistics(self, group: Group, statistics: Named) -> None:
        """Add one group's statistics."""
        self.setting.emit(self._table.add_named(group.trial, group.instance, statistics))

    def further_statistics(self, group: Group) -> Named:  # noqa: ARG002 - for overriding methods
        """Statistics that a subclass adds to those of a group's answer."""
        return []

    def finish(self) -> list[Stat]:
        """The run's statistics."""
        self.flush()
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
    """Why an answer cannot be compared with the references; None if it can."""
    references = group.instance.references
    if references and not any(reference.is_correct for reference in references):
        return f"{group.label}: no reference is tagged correct"
    return None


def code_scores(names: Sequence[str]) -> tuple[str, ...]:
    """The scores that run code written by the model."""
    return tuple(name for name in names if name in CODE_SCORES)


class _Scored(NamedTuple):
    """A group that is being scored."""

    group: Group
    answer: AnswerTexts | None
    runs: Sequence[Future[RunResult]]
    """The runs of its programs, if scores need them."""


class _AnswerScores:
    """Scores groups' answers in batches, possibly in several processes, and returns them in order."""

    def __init__(self, names: tuple[str, ...], setting: Setting) -> None:
        self._spec = setting.adapter_spec
        num_outputs = setting.adapter_spec.num_outputs
        self._stat_names = stat_names(names, num_outputs)
        self._scorer = Scorer([name for name in names if name not in CODE_SCORES], num_outputs)
        self._code: CodeScorer | None = None
        if setting.unsafe_code is not None and code_scores(names):
            self._code = CodeScorer(code_scores(names), num_outputs, setting.unsafe_code)
        self._pool = ScoringPool(self._scorer, setting.parallelism)
        self._batch: list[_Scored] = []
        self._pending: deque[tuple[list[_Scored], Future[Scores]]] = deque()

    def unscorable(self, group: Group) -> str | None:
        """Why a group's programs cannot be tested; None if they can."""
        if self._code is None or not self._code.lacks_tests(group.instance):
            return None
        return f"{group.label}: there are no tests for its programs"

    def add(self, group: Group) -> None:
        """Add a group with an answer.

        Raises:
            DeadlineError: Its answer takes too long to match.
            SpecificationError: The adapter's output mapping pattern is not a regular expression.
        """
        answer = _answer_of(self._spec, group)
        runs: Sequence[Future[RunResult]] = ()
        if self._code is not None and answer is not None:
            runs = self._code.submit(group.instance, answer.predictions)
        self._batch.append(_Scored(group, answer, runs))
        if len(self._batch) >= _BATCH:
            self._submit()

    def ready(self) -> list[tuple[Group, Named]]:
        """The groups that are scored, with their scores; waits only if too many batches are pending."""
        return self._scored(_BATCHES_AHEAD * self._pool.width)

    def rest(self) -> list[tuple[Group, Named]]:
        """All remaining groups with their scores."""
        self._submit()
        return self._scored(0)

    def close(self) -> None:
        """Stop the processes."""
        self._pool.close()
        if self._code is not None:
            self._code.close()

    def _submit(self) -> None:
        if not self._batch:
            return
        answers = [one.answer for one in self._batch if one.answer is not None]
        self._pending.append((self._batch, self._pool.submit(answers)))
        self._batch = []

    def _scored(self, ahead: int) -> list[tuple[Group, Named]]:
        scored: list[tuple[Group, Named]] = []
        while len(self._pending) > ahead:
            batch, future = self._pending.popleft()
            scores = iter(future.result())
            scored += [(one.group, [] if one.answer is None else self._named(one, next(scores))) for one in batch]
        return scored

    def _named(self, scored: _Scored, scores: Sequence[int | float | None]) -> Named:
        confidence = ("max_prob", _probability(_likeliest_first(scored.group.answer)[0]))
        by_name = dict(zip(self._scorer.stat_names, scores, strict=True))
        if self._code is not None and scored.answer is not None:
            by_name |= self._code.scores(len(scored.answer.predictions), scored.runs)
        return [confidence, *((name, by_name[name]) for name in self._stat_names)]


def _answer_of(adapter_spec: AdapterSpec, group: Group) -> AnswerTexts | None:
    """The texts that a group is scored on; ``None`` if the instance has no references.

    Raises:
        DeadlineError: Its answer takes too long to match.
        SpecificationError: The adapter's output mapping pattern is not a regular expression.
    """
    state = group.answer
    if not group.instance.references:
        return None
    golds = tuple(reference.output.text for reference in group.instance.all_correct_references)
    predictions = [completion.text.strip() for completion in _likeliest_first(state)]
    if state.output_mapping is not None:
        if adapter_spec.output_mapping_pattern:
            predictions = _extract(adapter_spec.output_mapping_pattern, predictions)
        predictions = [state.output_mapping.get(text, "") for text in predictions]
    return AnswerTexts(golds, tuple(predictions))


def _likeliest_first(state: RequestState) -> list[GeneratedOutput]:
    return sorted(state.answer.completions, key=lambda completion: -completion.logprob)


def _probability(completion: GeneratedOutput) -> float:
    import numpy as np

    logprob = plain_number(completion.logprob)
    with np.errstate(over="ignore"):
        return float(np.exp(logprob))  # not math.exp, which differs in the last bit


def _extract(pattern: str, texts: Sequence[str]) -> list[str]:
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise SpecificationError(f"output_mapping_pattern {pattern!r} is not a regular expression: {error}") from None
    deadline = Deadline(SCORING_SECONDS)
    with deadline.watching(), deadline:
        matches = [expression.search(text) for text in texts]
    return ["" if match is None else match[1 if expression.groups else 0] or "" for match in matches]
