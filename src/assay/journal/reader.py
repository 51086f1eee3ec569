"""Reads a journal without a lock and without changing it, even while another process is writing it."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from assay.errors import JournalError
from assay.journal.records import Header, Record, ResponseRecord
from assay.journal.state import JournalState, Placed, scan_records
from assay.types import Failure, FailureCause

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def records(path: str | Path) -> Iterator[Record]:
    """Every record of a journal, in the order of writing, except damaged ones and those of unknown kinds.

    A key may occur more than once: a failed request is asked again when the run is resumed. The last answer counts.

    Raises:
        JournalError: There is no such file, it cannot be read, or it is no journal.
        JournalVersionError: A newer Assay wrote it.
    """
    with _open(path) as (fd, size):
        for item in scan_records(fd, size, path):
            if isinstance(item, Placed) and item.record is not None:
                yield item.record


class DamagedRegion(msgspec.Struct, frozen=True):
    """A stretch of the file that belongs to no whole record."""

    offset: int
    """In bytes, from the start of the file."""
    length: int


class JournalReport(msgspec.Struct, frozen=True, kw_only=True):
    """A journal's counts and condition."""

    path: str
    size: int
    """Bytes."""
    header: Header | None
    """The first one; None if it is damaged."""
    records: int
    """Whole records of every kind."""
    responses: int
    """Answers and failures, including those of requests asked again."""
    answers: int
    """Requests with an answer, which a resumed run does not ask again."""
    failures: dict[FailureCause, int]
    """Requests without an answer, by the cause of their last failure."""
    unknown: int
    """Whole records of kinds that this version does not know."""
    damaged: tuple[DamagedRegion, ...]
    """Damage between whole records."""
    torn: DamagedRegion | None
    """The bytes after the last whole record: a write that was interrupted or is in progress."""
    date_id: str | None
    """Time stamp of the results that were being written when the run ended."""
    finished: bool
    """The results are written."""
    failed: int | None
    """Samples without a response, if finished; 0: finished for good."""

    @property
    def is_whole(self) -> bool:
        """Whether every byte belongs to a whole record."""
        return not self.damaged and self.torn is None


def check(path: str | Path) -> JournalReport:
    """Read a journal from end to end and report its state.

    Raises:
        JournalError: There is no such file, it cannot be read, or it is no journal.
        JournalVersionError: A newer Assay wrote it.
    """
    with _open(path) as (fd, size):
        state = JournalState()
        unanswered: dict[str, FailureCause] = {}
        for item in scan_records(fd, size, path):
            state.add(item)
            if isinstance(item, Placed) and isinstance(item.record, ResponseRecord):
                _note_failure(unanswered, item.record, state)
    torn = state.damaged.pop() if state.damaged and state.damaged[-1].end == size else None
    return JournalReport(
        path=str(path),
        size=size,
        header=state.header,
        records=state.records,
        responses=state.responses,
        answers=len(state.answers),
        failures=dict(Counter(unanswered.values())),
        unknown=state.unknown,
        damaged=tuple(DamagedRegion(damage.offset, damage.end - damage.offset) for damage in state.damaged),
        torn=DamagedRegion(torn.offset, torn.end - torn.offset) if torn else None,
        date_id=state.date_id,
        finished=state.finished is not None,
        failed=state.finished.failed if state.finished else None,
    )


def _note_failure(unanswered: dict[str, FailureCause], record: ResponseRecord, state: JournalState) -> None:
    """Update the keys that have no answer, with the cause of their last failure."""
    if isinstance(record.response, Failure):
        if state.answers.get(record.key) is None:
            unanswered[record.key] = record.response.cause
    else:
        unanswered.pop(record.key, None)


@contextmanager
def _open(path: str | Path) -> Iterator[tuple[int, int]]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise JournalError(f"cannot open the journal {path}: {error.strerror}") from error
    try:
        yield fd, os.fstat(fd).st_size
    finally:
        os.close(fd)
