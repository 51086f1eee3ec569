"""Finds, locks and creates a run's journal file."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import tempfile
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay._util.storage import is_storage_error, write_error
from assay.errors import JournalError, JournalLockedError, OutputError, SpecificationError, StorageError
from assay.journal.records import task_names
from assay.journal.state import first_header, headers, is_finished_for_good

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUFFIX = ".journal"
_START = "%Y-%m-%dT%H-%M-%S.%fZ"
_BLOCK = 2**20
"""Bytes copied at a time."""

_log = logging.getLogger(__name__)


class JournalRun(NamedTuple):
    """What identifies a run's journal."""

    fingerprints: tuple[str, ...]
    """One for each endpoint of the run, in hexadecimal. Any of them identifies the journal."""
    specification: Mapping[str, Any]


def claim(folder: Path, run: JournalRun, *, fresh: bool, newest: bool) -> tuple[Path, int]:
    """Find or create a run's journal, see :meth:`assay.journal.Journal.open`. Returns path and locked descriptor."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with _folder_lock(folder):
            found = None if fresh else _lock_resumable(folder, run, even_finished=newest)
            if found is None and newest:
                raise SpecificationError(
                    f"{folder} holds no run of these tasks and settings whose failed samples could be asked again"
                )
            return found or _create(folder, run.fingerprints[0])


def find_journals(folder: str | Path, fingerprint: str | None = None) -> list[Path]:
    """A folder's journals, oldest first; with a fingerprint, only those whose name ends with its first 12 digits.

    Raises:
        JournalError: The folder cannot be read. (One that does not exist has no journals.)
    """
    ending = SUFFIX if fingerprint is None else _ending(fingerprint)
    try:
        return sorted(path for path in Path(folder).iterdir() if path.name.endswith(ending))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise JournalError(f"cannot read the folder {folder}: {error.strerror}") from error


def _lock_resumable(folder: Path, run: JournalRun, *, even_finished: bool) -> tuple[Path, int] | None:
    """Open and lock a run's newest journal; None if there is none, or it is finished and not `even_finished`."""
    for path in reversed(find_journals(folder)):
        name_matches = any(path.name.endswith(_ending(fingerprint)) for fingerprint in run.fingerprints)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            if name_matches:
                raise
            continue  # another run's
        try:
            if (name_matches and _was_begun_by(run, path, fd)) or _was_continued_by(run, fd):
                lock(fd, path)
                if not even_finished and is_finished_for_good(fd, os.fstat(fd).st_size, path):
                    return None
                kept, fd = fd, -1
                return path, kept
        finally:
            if fd >= 0:
                os.close(fd)
    return None


def _was_begun_by(run: JournalRun, path: Path, fd: int) -> bool:
    # The file name holds only the beginning of the fingerprint. If the header is damaged, that must be enough.
    header = first_header(fd, os.fstat(fd).st_size, path)
    return header is None or header.fingerprint in run.fingerprints


def _was_continued_by(run: JournalRun, fd: int) -> bool:
    """Whether a journal that was begun at another endpoint later used one of this run's endpoints."""
    for header in headers(fd, os.fstat(fd).st_size):
        if task_names(header.specification) != task_names(run.specification):
            return False  # decided by the first header: there may be many journals, and long ones
        if not {header.fingerprint, *header.replicas}.isdisjoint(run.fingerprints):
            return True
    return False


def _ending(fingerprint: str) -> str:
    return f"_{fingerprint[:12]}{SUFFIX}"


def _create(folder: Path, fingerprint: str) -> tuple[Path, int]:
    """Create an empty, locked journal."""
    while True:
        path = folder / f"{_start_in(folder).strftime(_START)}{_ending(fingerprint)}"
        with suppress(FileExistsError):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            break
    try:
        lock(fd, path)
        _sync_folder(folder)
    except BaseException:
        os.close(fd)
        raise
    return path, fd


def _start_in(folder: Path) -> datetime:
    """The current time, but later than the newest journal's even if the clock was set back: names give the order."""
    now = datetime.now(UTC)
    for path in reversed(find_journals(folder)):
        with suppress(ValueError, OverflowError):  # not a name that Assay gives
            newest = datetime.strptime(path.name.partition("_")[0], _START).replace(tzinfo=UTC)
            return max(now, newest + timedelta(microseconds=1))
    return now


def is_file_at(path: Path, fd: int) -> bool:
    """Whether an open file still has that path; assumed if the path may not be read."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except PermissionError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def recreate(path: Path, fd: int, size: int, answers: int) -> int:
    """Write a journal that was deleted, moved away or replaced to its path again.

    If another file has that path now, it is renamed.

    Args:
        path: the journal's path.
        fd: the journal, still open.
        size: where its last record ends.
        answers: how many answers it holds, for messages.

    Returns:
        The new file's descriptor, locked.

    Raises:
        StorageError: it cannot be written again; the message says where its answers are kept instead.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = _copy(fd, size, path.with_name(f".{path.name}.partial"))
        try:
            lock(made.fd, path)
            if path.exists():
                aside = path.with_name(f"{path.name}.replaced-{os.getpid()}")
                os.rename(path, aside)
                _log.warning("%s was replaced by another file, which is now %s", path, aside.name)
            os.rename(made.path, path)
            _sync_folder(path.parent)
        except BaseException:
            os.close(made.fd)
            raise
    except OSError as error:
        raise _rescue_error(path, fd, size, answers, error) from error
    return made.fd


class _Copy(NamedTuple):
    path: Path
    fd: int


def _copy(fd: int, size: int, path: Path) -> _Copy:
    copy = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        offset = 0
        while block := os.pread(fd, min(_BLOCK, size - offset), offset):
            while block:
                written = os.pwrite(copy, block, offset)
                offset += written
                block = block[written:]
        os.fsync(copy)
    except BaseException:
        os.close(copy)
        with suppress(OSError):
            path.unlink()
        raise
    return _Copy(path, copy)


def _rescue_error(path: Path, fd: int, size: int, answers: int, error: OSError) -> StorageError:
    gone = f"{path} was deleted or moved away while the run was writing it, and cannot be made again"
    try:
        kept = _copy(fd, size, Path(tempfile.mkdtemp(prefix="assay-journal-")) / path.name)
    except OSError:
        return StorageError(f"{gone} ({error.strerror}): its {answers} answers are lost")
    os.close(kept.fd)
    return StorageError(
        f"{gone} ({error.strerror}): its {answers} answers are kept in {kept.path}; "
        f"move that file to {path.parent}, then run the same command again"
    )


def lock(fd: int, path: Path) -> None:
    """Lock a journal until its descriptor is closed; the system does that when the process ends."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalLockedError(
            f"another process is writing {path}: wait for it to end, or start a separate run with --fresh"
        ) from None
    except OSError as error:
        _log.warning("this file system cannot lock %s (%s): do not run the same command twice", path, error.strerror)


def remove_finished(path: Path) -> bool:
    """Remove a journal whose run has all its results, unless a process is using it.

    Returns:
        Whether it was removed.

    Raises:
        JournalError: it cannot be read or removed.
    """
    try:
        with path.open("rb+") as file:
            if not _is_idle_and_finished(file.fileno(), path):
                return False
            path.unlink()
    except OSError as error:
        raise JournalError(f"cannot remove {path}: {error.strerror}") from error
    return True


def is_finished(path: Path) -> bool:
    """Whether a journal's run has all its results, and no process is using it."""
    try:
        with path.open("rb+") as file:
            return _is_idle_and_finished(file.fileno(), path)
    except OSError:
        return False


def _is_idle_and_finished(fd: int, path: Path) -> bool:
    try:
        lock(fd, path)
    except JournalLockedError:
        return False
    return is_finished_for_good(fd, os.fstat(fd).st_size, path)


@contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Keep two processes from both starting a journal for the same run, if the file system supports locks."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _sync_folder(folder: Path) -> None:
    """Make a new file's name durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


class writing:  # noqa: N801 - used as contextlib.suppress is; a generator takes three times as long, for every record
    """Turn OSError in a ``with`` block into an error that names the file."""

    __slots__ = ("_place",)

    def __init__(self, place: Path) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            failure = f"cannot write to {error.filename or self._place}"
            if is_storage_error(error):
                raise write_error(failure, error) from error
            raise OutputError(f"{failure}: {error.strerror}; make it writable or choose another folder") from error
