"""Files written whole or not at all, and what is said where one cannot be written.

The place was chosen badly, or the disk under it is full or fails.
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
    from collections.abc import Iterable

_BLOCK = 2**20
"""Bytes that are written at once."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FAILING = frozenset({errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT})
"""Local disks, network file systems and those in user space."""
_NO_MORE_FILES = frozenset({errno.EMFILE, errno.ENFILE})


def write_whole(file: Path, content: bytes | Iterable[bytes], *, failure: str = "", kept: str = "") -> Path:
    """Write a file, and its folder where there is none; under its name it is whole or as it was.

    Where several processes write the same file, the last one's stays.

    Args:
        file: where; what is there, or what a link there leads to, is replaced. A device or a pipe, such as
            ``/dev/stdout``, is written to.
        content: what, in parts if it is much.
        failure: what to say could not be done; by default ``cannot write <file>``.
        kept: see :func:`unwritten`.

    Returns:
        The file.

    Raises:
        StorageError: the disk is full or fails.
        OutputError: the file cannot be written.
    """
    chunks = [content] if isinstance(content, bytes) else content
    try:
        if _takes_a_stream(file):
            with open(file, "wb", _BLOCK) as stream:
                stream.writelines(chunks)
        else:
            target = Path(os.path.realpath(file))
            _refuse_protected(target)
            replace_whole(target, chunks, target.with_name(f".{target.name}.partial"))
    except OSError as error:
        raise unwritten(failure or f"cannot write {file}", error, kept) from error
    return file


def replace_whole(
    file: Path, chunks: Iterable[bytes], beside: Path, *, mode: int = 0o666, durable: bool = True
) -> None:
    """Write to another name in the same folder first, and give the file its own once it is whole.

    Args:
        file: where; what is there is replaced.
        chunks: what.
        beside: the other name. Nothing is left there where the file cannot be finished.
        mode: of the file, less the umask.
        durable: wait until the disk has it.

    Raises:
        OSError: the file cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(_alone_at(beside, mode), "wb", _BLOCK) as written:
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


def _alone_at(path: Path, mode: int) -> int:
    """An empty file that no other process writes meanwhile, however many were killed while they did."""
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        try:
            with suppress(OSError):  # not every file system can
                fcntl.flock(fd, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):  # else another one has just finished with it
                if os.path.samestat(os.stat(path), os.fstat(fd)):
                    os.ftruncate(fd, 0)
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _takes_a_stream(file: Path) -> bool:
    """Whether a file is a device or a pipe, or stands for one that is open: none to be replaced."""
    try:
        mode = os.stat(file).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) or os.path.abspath(file).startswith(("/dev/fd/", "/dev/std", "/proc/"))


def _refuse_protected(file: Path) -> None:
    if file.exists() and not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def unwritten(failure: str, error: OSError, kept: str = "") -> OutputError:
    """The error that says why something could not be written, and what to do.

    Args:
        failure: what could not be done, as ``cannot write x.json``.
        error: what the system said.
        kept: what is safe all the same, as ``the answers are kept in …``.
    """
    message = f"{failure}: {error.strerror or error}" + (f"; {kept}" if kept else "")
    if is_of_storage(error):
        return StorageError(f"{message}; {_remedy(error.errno)}, then run the same command again")
    return OutputError(f"{message}; make it writable, then run the same command again" if kept else message)


def is_of_storage(error: OSError) -> bool:
    """Whether the disk is to blame, and nothing that was asked for."""
    return _remedy(error.errno) is not None


def _remedy(number: int | None) -> str | None:
    if number in _FULL:
        return "make room"
    if number in _FAILING:
        return "check the disk"
    return "allow more open files (ulimit -n)" if number in _NO_MORE_FILES else None
