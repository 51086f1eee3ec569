"""Finds a journal's answers to a task's prompts, which are built anew and may have changed since the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.client.request_shape import shape_of
from assay.tasks.loglikelihood import needs_loglikelihood
from assay.tasks.requests import RequestWriter, request_key, samples
from assay.tasks.tokenizer import tokenizer_of
from assay.types import CompleteSample, LogprobSource, Sample, Specification

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.journal import ResponseRecord
    from assay.journal.by_document import ResponsesByDocument
    from assay.scoring.task_scores import TaskScores
    from assay.types import Request, Response


@dataclass
class RecordedAnswers:
    """Matches prompts as they are built now with the answers in the journal."""

    specification: Specification
    journal: ResponsesByDocument
    recorded_as: Mapping[str, str]
    """By task, its name in the run."""
    counted: Callable[[str, int], bool]
    """Whether a document (its task's name in the run, and its number) is part of the run's results. A document that was
    in flight when the run stopped early may have an answer, but is not part of them."""
    scored: Callable[[str, int], bool]
    """Whether such a document had a score: if the journal has no answers to it, they are lost."""
    changed_prompts: Counter[str] = field(default_factory=Counter, init=False)
    lost: Counter[str] = field(default_factory=Counter, init=False)
    """By task, how many documents lack answers in the journal although they were answered."""

    def score(self, scores: Mapping[str, TaskScores]) -> None:
        """Score every document that the run asked."""
        model, options = self.specification.model, self.specification.options
        tokenizer = tokenizer_of(model)
        tasks = {name: task_scores.task for name, task_scores in scores.items()}
        # The run asked for log-likelihoods in one of two ways. The journal has answers to the requests of that one.
        sources = tuple(LogprobSource) if needs_loglikelihood(tasks) else (None,)
        writers = [RequestWriter(model, tokenizer, source) for source in sources]
        for name, task in tasks.items():
            for sample in samples(name, task, writers[0], options, scores[name].refuse):
                self._score(sample, writers, scores[name])
            scores[name].fail_all_if_refused()

    def left_out(self, scores: Mapping[str, TaskScores]) -> dict[str, int]:
        """By task, how many documents were asked and have no score."""
        return {name: len(found.failed) + self.lost[name] for name, found in scores.items()}

    def _score(self, sample: Sample, writers: list[RequestWriter], scores: TaskScores) -> None:
        name = self.recorded_as.get(sample.task, sample.task)
        if not self.counted(name, sample.doc_id):
            return
        records = self.journal.records(name, sample.doc_id)
        if not records and not self.scored(name, sample.doc_id):
            return
        responses = self._same_requests(sample, writers, records)
        if responses is None and (responses := _same_places(sample, records)) is not None:
            self.changed_prompts[sample.task] += 1
        if responses is None:
            self.lost[sample.task] += 1
            return
        scores.receive([CompleteSample(sample, responses)])

    def _same_requests(
        self, sample: Sample, writers: list[RequestWriter], records: list[ResponseRecord]
    ) -> list[Response] | None:
        by_key = {record.key: record.response for record in records}
        for writer in writers:
            requests = sample.requests if writer is writers[0] else _rewritten(sample, writer)
            keys = [self._key_then(request) for request in requests]
            if all(key in by_key for key in keys):
                return [by_key[key] for key in keys]
        return None

    def _key_then(self, request: Request) -> str:
        name = self.recorded_as.get(request.task, request.task)
        if name == request.task:
            return request.key
        place = (name, request.doc_id, request.index, request.repeat)
        model = self.specification.model
        return request_key(place, model.endpoint, request.payload, request.scored, shape_of(model).identity)


def _rewritten(sample: Sample, writer: RequestWriter) -> list[Request]:
    return [
        request
        for index, instance in enumerate(sample.instances)
        for request in writer.requests_of(instance, (sample.task, sample.doc_id, index))
    ]


def _same_places(sample: Sample, records: list[ResponseRecord]) -> list[Response] | None:
    """The answers to the document's requests by their places, whatever the prompts; None if one is missing."""
    by_place: dict[tuple[int, int], list[Response]] = {}
    for record in records:
        by_place.setdefault((record.index, record.repeat), []).append(record.response)
    responses = []
    for request in sample.requests:
        found = by_place.get((request.index, request.repeat))
        if not found:
            return None
        responses.append(found.pop(0))
    return responses
