"""Scores other texts in place of the answers that a run recorded, by the task's own filters and metrics."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.runs.record import document_mean, score_of
from assay.scoring.random_state import random_state_at
from assay.scoring.sample_scores import Scorer
from assay.tasks.code_eval import runs_code
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.scoring.deadline import Deadline
    from assay.tasks.protocol import Task

_TOGETHER_SECONDS = 1.0
"""Time limit for several texts scored together; if they take longer, each is scored by itself."""


class OtherText(NamedTuple):
    """A text to score in place of a document's answer."""

    doc_id: int
    doc: Any
    text: str


class TextScorer:
    """Scores texts as answers to one task's documents, under one metric.

    Args:
        name: the task's name.
        task: lm-eval's Task object.
        key: the metric and filter.
        deadline: interrupts the task's code if it runs too long.
    """

    def __init__(self, name: str, task: Task, key: str, deadline: Deadline) -> None:
        self._name, self._scorer, self._deadline = name, Scorer(task), deadline
        self.key = key
        self._metric, self._filter = MetricKey.read(key)
        self._can_score = not runs_code(task) and self._filter in self._scorer.fallbacks

    def scores(self, texts: Sequence[OtherText]) -> list[float | None]:
        """The texts' scores between 0 and 1.

        None for those that cannot be scored: programs, which would have to be run, and texts on which the task's code
        fails.
        """
        if not self._can_score or not texts:
            return [None] * len(texts)
        if self._scorer.is_foreign or len(texts) == 1:
            return [score for text in texts for score in self._scored([text])]
        try:
            with self._deadline.within(_TOGETHER_SECONDS):
                return self._together(texts)
        except (Exception, SystemExit, GeneratorExit):  # the task's code: one of the texts may be to blame
            return [score for text in texts for score in self._scored([text])]

    def _scored(self, texts: Sequence[OtherText]) -> list[float | None]:
        (text,) = texts
        seeded = random_state_at(self._name, text.doc_id) if self._scorer.is_foreign else nullcontext()
        try:
            with self._deadline, seeded:
                return self._together(texts)
        except (Exception, SystemExit, GeneratorExit):
            return [None]

    def _together(self, texts: Sequence[OtherText]) -> list[float | None]:
        from lm_eval.api.instance import Instance

        instances = [
            Instance("generate_until", each.doc, ("", {}), 0, (self._name, each.doc_id, 1), resps=[each.text])
            for each in texts
        ]
        return [_score(values.get(self._metric)) for values in self._scorer.score_instances(self._filter, instances)]


def _score(value: Any) -> float | None:
    found = score_of(value.item() if hasattr(value, "item") else value)
    return None if found is None else document_mean(found)
