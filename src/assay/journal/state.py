"""A journal's state, built record by record. Used to read a journal and to resume from it."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.errors import JournalError, JournalVersionError
from assay.journal.frames import MAGIC, Damage, Frame, find_payloads, read_payload, scan
from assay.journal.index import OffsetIndex
from assay.journal.records import (
    HEADER_BEGINNING,
    Finalised,
    Finished,
    Header,
    Known,
    Probed,
    Record,
    ResponseRecord,
    decode_record,
)
from assay.types import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TAIL = 4096


class Placed(NamedTuple):
    """A whole record and its offsets."""

    offset: int
    end: int
    record: Record | None
    """None if it is of an unknown kind."""


def scan_records(fd: int, size: int, path: str | Path, start: int = 0) -> Iterator[Placed | Damage]:
    """Every record of an open journal with its offsets, and the damage between records, in file order.

    Args:
        fd: Open for reading.
        size: The file's size when reading began.
        path: Its name, for messages.
        start: Where to begin; what precedes the next record from there is reported as damage.

    Raises:
        JournalError: The file cannot be read, or is no journal.
        JournalVersionError: A newer Assay wrote it.
    """
    any_frame = False
    try:
        for item in scan(fd, size, start):
            if isinstance(item, Frame):
                any_frame = True
                yield Placed(item.offset, item.end, decode_record(item.payload))
            else:
                yield item
        if not any_frame and start == 0:
            beginning = os.pread(fd, len(MAGIC), 0)
            if not MAGIC.startswith(beginning):
                raise JournalError(f"{path} is not a journal of Assay: name another file")
    except JournalVersionError as error:
        raise JournalVersionError(f"{path} was written by a newer Assay: {error}") from None
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}") from error


class JournalState:
    """The state after the records read so far. Memory: sixteen bytes an answer."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.records = 0
        self.responses = 0
        self.unknown = 0
        self.answers = OffsetIndex()
        self.damaged: list[Damage] = []
        self.date_id: str | None = None
        self.finished: Finished | None = None
        self.probe: dict[str, Any] | None = None
        self.servers: dict[str, Any] | None = None
        self.end = 0
        """Where the last whole record ends."""

    def add(self, item: Placed | Damage) -> None:
        """Add the next record or stretch of damage."""
        if isinstance(item, Damage):
            self.damaged.append(item)
            return
        self.records += 1
        self.end = item.end
        match item.record:
            case None:
                self.unknown += 1
            case ResponseRecord():
                self.finished = None
                self.responses += 1
                if isinstance(item.record.response, Answer):
                    self.answers.put(item.record.key, item.offset)
            case Header():
                self.finished = None
                self.header = self.header or item.record
            case Probed():
                self.probe = item.record.report
            case Known():
                self.servers = item.record.servers
            case Finalised():
                self.date_id = item.record.date_id
            case Finished():
                # These results are complete; a resumed run writes new ones under a new time stamp.
                self.date_id = None
                self.finished = item.record


def first_header(fd: int, size: int, path: str | Path) -> Header | None:
    """A journal's first header; None if it is damaged."""
    first = next(scan_records(fd, size, path), None)
    return first.record if isinstance(first, Placed) and isinstance(first.record, Header) else None


def headers(fd: int, size: int) -> Iterator[Header]:
    """Every whole header, found without decoding the records between; headers of later schema versions are skipped."""
    for offset in find_payloads(fd, size, HEADER_BEGINNING):
        payload = read_payload(fd, size, offset)
        with suppress(JournalVersionError):
            record = None if payload is None else decode_record(payload)
            if isinstance(record, Header):
                yield record


def is_finished_for_good(fd: int, size: int, path: str | Path) -> bool:
    """Whether the last record says that the results are written and no sample failed."""
    last = deque(scan_records(fd, size, path, start=max(0, size - _TAIL)), maxlen=1)
    return any(
        isinstance(item, Placed) and isinstance(item.record, Finished) and item.record.failed == 0 for item in last
    )
