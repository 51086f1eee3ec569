"""The scores of a run in progress, as checks read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.client.request_shape import request_settings
from assay.runs.files import comparable_settings
from assay.runs.record import Score, TaskRecord, document_hash, prompt_hash, score_of
from assay.tasks.lm_eval_json import as_written
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.scoring.task_scores import TaskScores
    from assay.tasks.protocol import Task
    from assay.types import ModelSpec


class LiveScores:
    """The scores of the documents answered so far."""

    def __init__(self, scores: Mapping[str, TaskScores], model: ModelSpec) -> None:
        self._scores = scores
        self._model = model

    def value(self, task: str, doc_id: int, metric: str) -> Any:
        """A document's score under a metric key; None if it failed."""
        return self._scores[task].value(doc_id, *MetricKey.read(metric))

    def values(self, task: str, metric: str) -> dict[int, Any]:
        """The scores of all documents that have one under a metric key, by number."""
        return self._scores[task].values_by_document(*MetricKey.read(metric))

    def exact_values(self, task: str, metric: str) -> list[Any]:
        """The scores in document order, exact if they are known as fractions."""
        return list(self._scores[task].exact_values(*MetricKey.read(metric)).values())

    def failed(self, task: str) -> int:
        """How many documents have no score."""
        return len(self._scores[task].failed)

    def identity(self, task: str, doc_id: int) -> tuple[str, str]:
        """A scored document's short hashes: of the document with its target, and of its prompt."""
        document, prompt, target = self._scores[task].hashes(doc_id)
        return document_hash(document, target), prompt_hash(prompt)

    def record(self, name: str, metrics: tuple[str, ...]) -> TaskRecord:
        """One task as a finished run's record, with the scores of some metric keys."""
        scores = self._scores[name]
        doc_ids = tuple(scores.scored_documents)
        identities = [self.identity(name, doc_id) for doc_id in doc_ids]
        known: dict[str, tuple[Score, ...]] = {}
        for key in metrics:
            values = [score_of(self.value(name, doc_id, key)) for doc_id in doc_ids]
            known[key] = tuple(value for value in values if value is not None)
        return TaskRecord(
            name=name,
            settings=task_settings(scores.task, self._model),
            doc_ids=doc_ids,
            documents=tuple(document for document, _ in identities),
            prompts=tuple(prompt for _, prompt in identities),
            failed=tuple(sorted(scores.failed)),
            scores={key: values for key, values in known.items() if values and len(values) == len(doc_ids)},
        )


def task_settings(task: Task, model: ModelSpec | None = None) -> dict[str, Any]:
    """The settings of a loaded task, and of its model's requests, that must be equal for scores to be comparable."""
    requests = None if model is None else request_settings(model)
    return comparable_settings(as_written(task.dump_config()), task.VERSION, requests)
