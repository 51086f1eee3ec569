"""The answers that a journal holds to a task's prompts, which are written anew and may have changed since."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.models.request_shape import shape_of
from assay.tasks.loglikelihood import needs_loglikelihood
from assay.tasks.requests import RequestWriter, request_key, samples
from assay.tasks.tokenizer import Tokenizer
from assay.types import CompleteSample, LogprobSource, Sample, Specification

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.journal import ResponseRecord
    from assay.journal.by_document import ResponsesByDocument
    from assay.scoring.task_scores import TaskScores
    from assay.types import Request, Response


@dataclass
class RecordedAnswers:
    """Matches prompts as they are written now with the answers in the journal."""

    specification: Specification
    journal: ResponsesByDocument
    recorded_as: Mapping[str, str]
    """By task, its name in the run."""
    counted: Callable[[str, int], bool]
    """Whether a document (the task's name in the run, and its number) is part of the run's results. One that was under
    way when the run stopped early may have an answer, and is not."""
    scored: Callable[[str, int], bool]
    """Whether a document that counted is known to have had a score: if the journal has no answers, it lost them."""
    changed_prompts: Counter[str] = field(default_factory=Counter, init=False)
    lost: Counter[str] = field(default_factory=Counter, init=False)
    """By task, how many documents were answered and have no, or not every, answer in the journal any more."""

    def score(self, scores: Mapping[str, TaskScores]) -> None:
        """Score every document that the run asked."""
        model, options = self.specification.model, self.specification.options
        tokenizer = Tokenizer.of(model)
        tasks = {name: task_scores.task for name, task_scores in scores.items()}
        # Which way the server was asked is in the requests; without a journaled answer to the one, it was the other.
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
    """The answers to what was asked for the same document in the same place, whatever the words; None if any lacks."""
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
