"""Writes a run's journal, and resumes from it."""

from __future__ import annotations

import logging
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._version import __version__
from assay.errors import JournalError, StorageError
from assay.journal.files import JournalRun, claim, is_file_at, recreate, writing
from assay.journal.frames import MAGIC, encode_frame, read_payload
from assay.journal.records import (
    SCHEMA_VERSION,
    Finalised,
    Finished,
    Header,
    Known,
    Probed,
    Record,
    ResponseRecord,
    decode_record,
    encode_record,
)
from assay.journal.state import JournalState, scan_records
from assay.journal.sync import GroupCommit
from assay.types import Answer, Request, Response

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_log = logging.getLogger(__name__)


class Journal:
    """A run's journal, open for writing by this process alone. Create it with :meth:`open`; use it from one thread.

    A record survives the process's death once the method that wrote it has returned, and a power cut about half a
    second later.
    """

    path: Path
    resumed: bool
    """An earlier process wrote to this journal."""
    answers: int
    """Requests that had an answer when the journal was opened."""
    probe: dict[str, Any] | None
    """The probe's report on the server before the run."""
    servers: dict[str, Any] | None
    """What was known of the run's servers when it began, by address."""
    date_id: str | None
    """Time stamp of the results that an earlier process was writing when it ended."""

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        fingerprint: str,
        specification: dict[str, Any],
        replicas: tuple[str, ...] = (),
        fresh: bool = False,
        newest: bool = False,
    ) -> Journal:
        """Resume the run's journal if it has one that is not finished for good, else start one.

        Only the newest journal of these fingerprints is considered: an older one has been superseded.

        Args:
            folder: The folder of the journals; created if missing.
            fingerprint: Identifies the run, in hexadecimal.
            specification: The run's specification, for people who read the journal. Plain JSON data, without secrets.
            replicas: The run's fingerprints for further endpoints. A journal with any of all these is the run's.
            fresh: Start a new journal in any case.
            newest: Resume the newest journal in any case, and never start one.

        Raises:
            SpecificationError: There is no journal to resume, and none may be started.
            JournalLockedError: Another process is writing it.
            JournalVersionError: A newer Assay wrote it.
            JournalError: A file of that name is no journal, or cannot be read.
            OutputError: The folder cannot be made or written to.
        """
        path, fd = claim(Path(folder), JournalRun((fingerprint, *replicas), specification), fresh=fresh, newest=newest)
        try:
            return cls(path, fd, fingerprint, specification, replicas)
        except BaseException:
            os.close(fd)
            raise

    def __init__(
        self, path: Path, fd: int, fingerprint: str, specification: dict[str, Any], replicas: tuple[str, ...]
    ) -> None:
        """Take over an open, locked file: read what it holds, cut off a torn tail, add a header."""
        self.path = path
        state = _read(fd, path)
        self.resumed = state.records > 0
        self.answers = len(state.answers)
        self.date_id = state.date_id
        self.probe = state.probe
        self.servers = state.servers
        self._offsets = state.answers
        self._end = state.end
        self._fd: int | None = fd
        self._commit = GroupCommit(fd)
        self._must_check_name = False
        """Set every half second: the file may have been moved or deleted."""
        header = Header(
            version=SCHEMA_VERSION,
            fingerprint=fingerprint,
            specification=specification,
            assay=__version__,
            time=time.time(),
            replicas=replicas,
        )
        self._put(header)
        _close_after_fork(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def lookup(self, key: str) -> Answer | None:
        """The last answer recorded under a request's key; None if there is none, or only failures.

        Raises:
            JournalError: The file cannot be read.
        """
        offset = self._offsets.get(key)
        if offset is None:
            return None
        try:
            payload = read_payload(self._open_fd(), self._end, offset)
        except OSError as error:
            raise JournalError(f"cannot read the journal {self.path}: {error.strerror}") from error
        record = decode_record(payload) if payload is not None else None
        if isinstance(record, ResponseRecord) and record.key == key and isinstance(record.response, Answer):
            return record.response
        return None

    def append(self, request: Request, response: Response) -> None:
        """Record the response to a request.

        Raises:
            OutputError: It cannot be written (a full disk): earlier records are safe, and the call may be repeated. Or
                the disk failed to sync earlier records: then every later call raises as well.
            JournalError: The response is too long for a record, or the journal is closed.
        """
        offset = self._append(
            ResponseRecord(
                task=request.task,
                doc_id=request.doc_id,
                index=request.index,
                repeat=request.repeat,
                key=request.key,
                response=response,
                time=time.time(),
            )
        )
        if isinstance(response, Answer):
            self._offsets.put(request.key, offset)

    def note_probe(self, report: dict[str, Any]) -> None:
        """Record the probe's report on the server.

        Raises:
            OutputError: As :meth:`append`.
        """
        self._append(Probed(report=report, time=time.time()))
        self.probe = report

    def note_servers(self, servers: dict[str, Any]) -> None:
        """Record what is known of the run's servers.

        Raises:
            OutputError: As :meth:`append`.
        """
        self._append(Known(servers=servers, time=time.time()))
        self.servers = servers

    def finalise(self, date_id: str) -> None:
        """Record that results are about to be written under this time stamp.

        Raises:
            OutputError: As :meth:`append`.
        """
        self._must_check_name = True
        self._append(Finalised(date_id=date_id, time=time.time()))
        self.date_id = date_id

    def finish(self, failed: int) -> None:
        """Record that the results are written, and how many samples have no response.

        Raises:
            OutputError: As :meth:`append`.
        """
        self._append(Finished(failed=failed, time=time.time()))

    def close(self) -> None:
        """Make everything durable and release the journal. Closing twice does no harm.

        Raises:
            OutputError: What was written cannot be made durable.
        """
        if self._fd is None:
            return
        try:
            with writing(self.path):
                self._recover_from_truncation()
                self._restore_if_moved()
        finally:
            fd, self._fd = self._fd, None
            try:
                self._commit.stop()
                self._raise_sync_error()
            finally:
                os.close(fd)

    def _append(self, record: Record) -> int:
        """Write one record; returns its offset."""
        offset = self._put(record)
        self._raise_sync_error()
        return offset

    def _put(self, record: Record) -> int:
        with writing(self.path):
            self._recover_from_truncation()
            if self._must_check_name:
                self._restore_if_moved()
        frame = encode_frame(encode_record(record))
        if not self._end:
            self._write(MAGIC)
        offset = self._end
        self._write(frame)
        self._must_check_name = self._commit.request() or self._must_check_name
        return offset

    def _recover_from_truncation(self) -> None:
        """If another program has truncated the file, continue at its end: writing beyond it would leave a hole."""
        fd = self._open_fd()
        size = os.fstat(fd).st_size
        if size < self._end:
            state = _read(fd, self.path)
            lost = len(self._offsets) - len(state.answers)
            self._offsets, self._end = state.answers, state.end
            _log.warning(
                "%s was cut to %d bytes by another program: the run goes on, but %d answers are lost to a resumption",
                self.path,
                size,
                lost,
            )

    def _restore_if_moved(self) -> None:
        """Write the file again if it was deleted or moved away, from the descriptor that is still open.

        Raises:
            StorageError: It cannot be written again.
        """
        fd = self._open_fd()
        self._must_check_name = False
        if is_file_at(self.path, fd):
            return
        self._raise_sync_error()
        made = recreate(self.path, fd, self._end, len(self._offsets))
        self._commit.stop()
        self._fd, self._commit = made, GroupCommit(made)
        os.close(fd)
        _log.warning(
            "%s was deleted or moved away while the run is writing it: it is made again, with its %d answers",
            self.path,
            len(self._offsets),
        )

    def _write(self, content: bytes) -> None:
        fd = self._open_fd()
        end = self._end
        try:
            while content:
                written = os.pwrite(fd, content, end)
                content = content[written:]
                end += written
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(fd, self._end)
            raise StorageError(
                f"cannot write to {self.path}: {error.strerror}; "
                f"the {len(self._offsets)} answers in it are safe: make room, then run the same command again"
            ) from error
        self._end = end

    def _raise_sync_error(self) -> None:
        try:
            self._commit.check()
        except OSError as error:
            raise StorageError(
                f"cannot make {self.path} durable: {error.strerror}; check the disk, then run the same command again"
            ) from error

    def _open_fd(self) -> int:
        if self._fd is None:
            raise JournalError(f"the journal {self.path} is closed")
        return self._fd


def _read(fd: int, path: Path) -> JournalState:
    """Read a locked journal and cut off what follows its last whole record."""
    size = os.fstat(fd).st_size
    state = JournalState()
    for item in scan_records(fd, size, path):
        state.add(item)
    if size > state.end:
        with writing(path):
            os.ftruncate(fd, state.end)
        _log.warning("%s ended in a torn or damaged record: its %d bytes were cut off", path, size - state.end)
    between = [damage for damage in state.damaged if damage.end < size]
    if between:
        _log.warning(
            "%s is damaged in %d places (%d bytes): only the records there are lost, their requests are asked again",
            path,
            len(between),
            sum(damage.end - damage.offset for damage in between),
        )
    return state


def _close_after_fork(journal: Journal) -> None:
    """Close the descriptor in forked children, which would otherwise keep the lock after the parent's death."""
    reference = weakref.ref(journal)

    def close_in_child() -> None:
        forked = reference()
        if forked is not None and forked._fd is not None:
            fd, forked._fd = forked._fd, None
            os.close(fd)

    os.register_at_fork(after_in_child=close_in_child)
