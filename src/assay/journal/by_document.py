"""Looks up a finished run's responses by document, and reads them from the journal only on demand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from assay._util.places import PlacesByDocument
from assay.errors import JournalError
from assay.journal.frames import payload_reader
from assay.journal.records import ResponseRecord, decode_record
from assay.journal.state import Placed, scan_records
from assay.types import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class ResponsesByDocument:
    """An index of a journal's responses by document. Memory: sixteen bytes a response.

    Raises:
        JournalError: There is no such file, it cannot be read, or it is no journal.
        JournalVersionError: A newer Assay wrote it.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise JournalError(f"cannot open the journal {path}: {error.strerror}") from error
        size = os.fstat(self._fd).st_size
        self._payload_at = payload_reader(self._fd, size)
        self._places: dict[str, PlacesByDocument] = {}
        """Offsets of all responses, by task. A request that was asked again has several."""
        try:
            for item in scan_records(self._fd, size, path):
                if isinstance(item, Placed) and isinstance(item.record, ResponseRecord):
                    self._add(item.record, item.offset)
        except BaseException:
            self.close()
            raise

    def _add(self, record: ResponseRecord, offset: int) -> None:
        if record.task not in self._places:
            self._places[record.task] = PlacesByDocument()
        try:  # noqa: SIM105 - suppress() would take as long as the rest, for every response
            self._places[record.task].add(record.doc_id, offset)
        except OverflowError:  # no run has so many documents: nobody will look this one up
            pass

    def records(self, task: str, doc_id: int) -> list[ResponseRecord]:
        """The responses to a document's requests, in the order of the requests; for each the one that counts."""
        places = self._places.get(task)
        payloads = [] if places is None else [self._payload_at(offset) for offset in places.of(doc_id)]
        decoded = [decode_record(payload) for payload in payloads if payload is not None]
        found = [record for record in decoded if isinstance(record, ResponseRecord)]
        return found if len(found) < 2 else _counting(found)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _counting(records: Iterable[ResponseRecord]) -> list[ResponseRecord]:
    """For each request the record that counts, in the order of the requests."""
    counting: dict[str, ResponseRecord] = {}
    for record in records:
        if _counts_before(counting.get(record.key), record):
            counting[record.key] = record
    return sorted(counting.values(), key=lambda record: (record.index, record.repeat))


def _counts_before(known: ResponseRecord | None, record: ResponseRecord) -> bool:
    """Whether a later record of the same request replaces `known`: the last answer counts, or else the last failure."""
    return known is None or isinstance(record.response, Answer) or not isinstance(known.response, Answer)
