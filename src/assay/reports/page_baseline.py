"""A baseline's answers to the documents of a run, for the report's list of samples."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from assay.reports.page_texts import WHOLE
from assay.runs.answers import read_answers
from assay.runs.pairing import pair_tasks
from assay.runs.record import AnswerText
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.runs.compare import Comparison
    from assay.runs.record import RecordedRun, TaskRecord

_LONGEST = 10 * WHOLE


class BaselineTexts:
    """A baseline's answers and flips, by task and document of the run that is compared with it."""

    def __init__(
        self, baseline: RecordedRun, candidate: RecordedRun, comparison: Comparison, chosen_keys: Mapping[str, str]
    ) -> None:
        self._baseline = baseline
        self._candidate = candidate
        self._chosen = chosen_keys
        self._task = ""
        self._answers: dict[int, AnswerText] = {}
        self._flips: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
        for flip in comparison.flips:
            self._flips[flip.task, flip.doc_id][flip.metric] = flip.change

    def flips(self, task: str, doc_id: int) -> Mapping[str, str]:
        """By metric key, whether the document was lost or gained."""
        return self._flips.get((task, doc_id), {})

    def answer(self, task: str, doc_id: int) -> AnswerText | None:
        """The baseline's answer; None if unknown. Ask task by task: only one task's answers are in memory."""
        if task != self._task:
            self._task = task
            before, after = self._baseline.tasks.get(task), self._candidate.tasks.get(task)
            self._answers = {} if before is None or after is None else self._read(before, after)
        return self._answers.get(doc_id)

    def _read(self, before: TaskRecord, after: TaskRecord) -> dict[int, AnswerText]:
        numbers = {
            before.doc_ids[pair.before]: pair.doc_id
            for pair in pair_tasks(before, after).pairs
            if pair.before is not None
        }
        chosen = self._chosen.get(before.name)
        found = read_answers(before, MetricKey.read(chosen).filter if chosen else "none", numbers)
        return {numbers[doc_id]: _shortened(answer) for doc_id, answer in found.items()}


def _shortened(answer: AnswerText) -> AnswerText:
    """The answer, without its middle if it is huge: a task's answers are all in memory."""
    text = answer.response
    if len(text) <= _LONGEST:
        return answer
    return AnswerText(f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}", answer.extracted[:_LONGEST], answer.target)
