"""Summarises a journal: which run, how far it got, what failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.errors import JournalError
from assay.journal.files import find_journals
from assay.journal.reader import JournalReport, check, records
from assay.journal.records import Header, ResponseRecord
from assay.types import Failure, FailureCause

if TYPE_CHECKING:
    from collections.abc import Iterator


class TaskSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one task's requests."""

    answers: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class FailedRequest(msgspec.Struct, frozen=True):
    """A request whose last response is a failure."""

    task: str
    doc_id: int
    cause: FailureCause
    message: str


class JournalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A journal in figures. Times are Unix times."""

    report: JournalReport
    begun: float | None = None
    last: float | None = None
    starts: int = 0
    """Processes that opened it for writing."""
    tasks: dict[str, TaskSummary] = {}
    finish_reasons: dict[str, int] = {}
    failures: tuple[FailedRequest, ...] = ()


def journals_at(path: str | Path) -> list[Path]:
    """The journal at a path, or all journals in a folder, oldest first.

    Args:
        path: a journal, or a folder with journals: an output directory, a model's folder in it, or that folder's
            ``journal/``.

    Raises:
        JournalError: the folder has no journal.
    """
    place = Path(path)
    if not place.is_dir():
        return [place]
    for folders in ([place], [place / "journal"], sorted(place.glob("*/journal"))):
        found = [file for folder in folders for file in find_journals(folder)]
        if found:
            return found
    raise JournalError(f"there is no journal in {path}: looked there, in journal/ and in */journal/")


def summarise(file: str | Path) -> JournalSummary:
    """Count a journal's records. The journal may be damaged or in use; it is not changed.

    Raises:
        JournalError: it cannot be read, or a newer Assay wrote it.
    """
    counts = _Counts()
    for record in records(file):
        counts.begun = record.time if counts.begun is None else counts.begun
        counts.last = record.time
        if isinstance(record, Header):
            counts.starts += 1
        elif isinstance(record, ResponseRecord):
            counts.add(record)
    return JournalSummary(
        report=check(file),
        begun=counts.begun,
        last=counts.last,
        starts=counts.starts,
        tasks=dict(counts.tasks()),
        finish_reasons=dict(counts.finish_reasons),
        failures=tuple(counts.unanswered.values()),
    )


class _Counts:
    def __init__(self) -> None:
        self.begun: float | None = None
        self.last: float | None = None
        self.starts = 0
        self.finish_reasons: Counter[str] = Counter()
        self.unanswered: dict[str, FailedRequest] = {}
        """By request."""
        self._answers: Counter[str] = Counter()
        self._prompt_tokens: Counter[str] = Counter()
        self._completion_tokens: Counter[str] = Counter()

    def add(self, record: ResponseRecord) -> None:
        answer = record.response
        if isinstance(answer, Failure):
            self.unanswered[record.key] = FailedRequest(record.task, record.doc_id, answer.cause, answer.message)
            return
        self.unanswered.pop(record.key, None)
        self._answers[record.task] += 1
        self._prompt_tokens[record.task] += answer.prompt_tokens or 0
        self._completion_tokens[record.task] += answer.completion_tokens or 0
        self.finish_reasons[answer.finish_reason or "none given"] += 1

    def tasks(self) -> Iterator[tuple[str, TaskSummary]]:
        failures = Counter(failed.task for failed in self.unanswered.values())
        for task in (*self._answers, *(name for name in failures if name not in self._answers)):
            yield (
                task,
                TaskSummary(
                    answers=self._answers[task],
                    failures=failures[task],
                    prompt_tokens=self._prompt_tokens[task],
                    completion_tokens=self._completion_tokens[task],
                ),
            )
