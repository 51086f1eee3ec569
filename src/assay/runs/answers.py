"""Reads the texts of a run's answers on demand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay.results.sample_files import filter_of, first_text, read_lines, reading, value_of
from assay.runs.record import AnswerText

if TYPE_CHECKING:
    from collections.abc import Collection

    from assay.runs.record import TaskRecord


def read_answers(task: TaskRecord, filter_name: str, doc_ids: Collection[int]) -> dict[int, AnswerText]:
    """By document, the texts of some answers; empty if the run kept none.

    Args:
        task: the task.
        filter_name: the filter whose result is read.
        doc_ids: the documents.

    Raises:
        FileFormatError: the samples file is damaged.
    """
    wanted = set(doc_ids)
    if filter_name in task.texts:
        kept = zip(task.doc_ids, task.texts[filter_name], strict=True)
        return {doc_id: text for doc_id, text in kept if doc_id in wanted}
    if task.samples_file is None or not Path(task.samples_file).exists():
        return {}
    answers = {}
    for line in read_lines(Path(task.samples_file)):
        with reading(Path(task.samples_file), f"one of task '{task.name}'"):
            doc_id = value_of(line, "doc_id")
            if doc_id in wanted and filter_of(line) == filter_name:
                response, extracted, target = (value_of(line, name) for name in ("resps", "filtered_resps", "target"))
                answers[doc_id] = AnswerText(first_text(response), first_text(extracted), str(target))
    return answers
