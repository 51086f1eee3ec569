"""Files written whole or not at all, and what is said where one cannot be written.

The place was chosen badly, or the disk under it is full or fails.
"""

from __future__ import annotations

import errno
import functools
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from assay.errors import OutputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_BLOCK = 2**20
"""Bytes that are written at once."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FAILING = frozenset({errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT})
"""Local disks, network file systems and those in user space."""
_NO_MORE_FILES = frozenset({errno.EMFILE, errno.ENFILE})


def write_whole(file: Path, content: bytes | Iterable[bytes], *, failure: str = "", kept: str = "") -> Path:
    """Write a file, and its folder where there is none; under its name it is whole or as it was.

    Args:
        file: where; what is there is replaced.
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
        replace_whole(file, chunks, file.with_name(f".{file.name}.partial"))
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
    try:
        with open(beside, "wb", _BLOCK, opener=functools.partial(os.open, mode=mode)) as written:
            for chunk in chunks:
                written.write(chunk)
            if durable:
                written.flush()
                os.fsync(written.fileno())
        beside.replace(file)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


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
