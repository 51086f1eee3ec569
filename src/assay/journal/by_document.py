"""A finished run's responses by document, each read from the journal only when asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from assay.errors import JournalError
from assay.journal.frames import read_payload
from assay.journal.records import ResponseRecord, decode_record
from assay.journal.state import Placed, scan_records
from assay.types import Answer

if TYPE_CHECKING:
    from pathlib import Path


class ResponsesByDocument:
    """Knows where in a journal each document's responses lie; memory: some hundred bytes a request.

    Raises:
        JournalError: There is no such file, it cannot be read, or it is no journal.
        JournalVersionError: A newer Assay wrote it.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise JournalError(f"cannot open the journal {path}: {error.strerror}") from error
        self._size = os.fstat(self._fd).st_size
        self._places: dict[tuple[str, int], dict[str, tuple[int, bool]]] = {}
        """By task and document, for every key: where its response that counts lies, and whether it is an answer."""
        try:
            for item in scan_records(self._fd, self._size, path):
                if isinstance(item, Placed) and isinstance(item.record, ResponseRecord):
                    self._note(item.record, item.offset)
        except BaseException:
            self.close()
            raise

    def _note(self, record: ResponseRecord, offset: int) -> None:
        places = self._places.setdefault((record.task, record.doc_id), {})
        is_answer = isinstance(record.response, Answer)
        if is_answer or not places.get(record.key, (0, False))[1]:
            places[record.key] = (offset, is_answer)

    def records(self, task: str, doc_id: int) -> list[ResponseRecord]:
        """What came of a document's requests, in the order of the requests; of several attempts, what counts."""
        places = self._places.get((task, doc_id), {})
        payloads = (read_payload(self._fd, self._size, offset) for offset, _ in places.values())
        found = (decode_record(payload) for payload in payloads if payload is not None)
        return sorted(
            (record for record in found if isinstance(record, ResponseRecord)),
            key=lambda record: (record.index, record.repeat),
        )

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
