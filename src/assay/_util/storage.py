"""Writes files atomically, and builds the errors for files that cannot be written.

Such an error says whether the path is wrong, or the disk is full or failing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import OutputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BLOCK = 2**20
"""Bytes written at a time."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FAILING = frozenset({errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT})
"""Of local disks, network file systems and those in user space."""
_NO_MORE_FILES = frozenset({errno.EMFILE, errno.ENFILE})


def write_whole(file: Path, content: bytes | Iterable[bytes], *, failure: str = "", kept: str = "") -> Path:
    """Write a file atomically, and make its folder if it is missing.

    If several processes write the same file, the last one wins.

    Args:
        file: the path. An existing file, or the target of a symbolic link, is replaced. A device or a pipe, such as
            ``/dev/stdout``, is written to.
        content: the content, in chunks if it is large.
        failure: how the error message begins; by default ``cannot write <file>``.
        kept: see :func:`write_error`.

    Returns:
        `file`.

    Raises:
        StorageError: the disk is full or failing.
        OutputError: the file cannot be written.
    """
    chunks = [content] if isinstance(content, bytes) else content
    try:
        if _is_stream(file):
            with open(file, "wb", _BLOCK) as stream:
                stream.writelines(chunks)
        else:
            target = Path(os.path.realpath(file))
            _refuse_protected(target)
            replace_whole(target, chunks, target.with_name(f".{target.name}.partial"))
    except OSError as error:
        raise write_error(failure or f"cannot write {file}", error, kept) from error
    return file


def write_new(files: Mapping[Path, str], *, instead: str) -> None:
    """Write files that must not exist yet, and make their folders. If one exists, none is written.

    Args:
        files: the texts by path.
        instead: what to do about a file that exists, for the error message.

    Raises:
        StorageError: the disk is full or failing.
        OutputError: a file exists already, or cannot be written.
    """
    refuse_existing(files, instead=instead)
    for file, text in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as written:
                try:
                    written.write(text)
                    written.flush()
                except BaseException:
                    file.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise write_error(f"cannot write {file}", error) from error


def refuse_unwritable(file: Path) -> None:
    """Refuse a path that cannot be written, before the work whose outcome it is to hold; makes its folder.

    Raises:
        StorageError: the disk is full or failing.
        OutputError: the file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise write_error(f"cannot write {file}", error) from None


def refuse_existing(files: Iterable[Path], *, instead: str) -> None:
    """Raise an OutputError if a file exists already; `instead` says what to do about it."""
    if existing := next((file for file in files if file.exists()), None):
        raise OutputError(f"{existing} is there already; {instead}")


def replace_whole(
    file: Path, chunks: Iterable[bytes], beside: Path, *, mode: int = 0o666, durable: bool = True
) -> None:
    """Write a temporary file, then rename it to `file`.

    Args:
        file: the path; an existing file is replaced.
        chunks: the content.
        beside: the temporary file, in the same folder. It is removed if writing fails.
        mode: the file's mode, less the umask.
        durable: wait for fsync.

    Raises:
        OSError: the file cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(_open_locked(beside, mode), "wb", _BLOCK) as written:
        try:
            written.writelines(chunks)
            written.flush()
            if durable:
                os.fsync(written.fileno())
            beside.replace(file)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise


def _open_locked(path: Path, mode: int) -> int:
    """Open an empty file and lock it, so that no other process writes it. A killed process leaves no lock behind."""
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            with suppress(OSError):  # not every file system can
                fcntl.flock(fd, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):  # another process has just renamed it: try again
                if os.path.samestat(os.stat(path), os.fstat(fd)):
                    os.ftruncate(fd, 0)
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _is_stream(file: Path) -> bool:
    """Whether a file is a device, a pipe or an open descriptor, which is written to and not replaced."""
    try:
        mode = os.stat(file).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) or os.path.abspath(file).startswith(("/dev/fd/", "/dev/std", "/proc/"))


def _refuse_protected(file: Path) -> None:
    if file.exists() and not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_error(failure: str, error: OSError, kept: str = "") -> OutputError:
    """The error for something that could not be written, with what to do about it.

    Args:
        failure: what could not be done, such as ``cannot write x.json``.
        error: the system's error.
        kept: what is not lost, such as ``the answers are kept in …``.
    """
    message = f"{failure}: {error.strerror or error}" + (f"; {kept}" if kept else "")
    if is_storage_error(error):
        return StorageError(f"{message}; {_storage_remedy(error.errno)}, then run the same command again")
    return OutputError(f"{message}; make it writable, then run the same command again" if kept else message)


def is_storage_error(error: OSError) -> bool:
    """Whether the cause is the disk or the system, not the path that was asked for."""
    return _storage_remedy(error.errno) is not None


def _storage_remedy(number: int | None) -> str | None:
    if number in _FULL:
        return "make room"
    if number in _FAILING:
        return "check the disk"
    return "allow more open files (ulimit -n)" if number in _NO_MORE_FILES else None
