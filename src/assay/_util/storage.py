"""What is said where a file cannot be written: the place was chosen badly, or the disk under it is full or fails."""

from __future__ import annotations

import errno

from assay.errors import OutputError, StorageError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FAILING = frozenset({errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT})
"""Local disks, network file systems and those in user space."""
_NO_MORE_FILES = frozenset({errno.EMFILE, errno.ENFILE})


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
