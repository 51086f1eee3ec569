"""A temporary file for data that is too large to keep in memory until the end of a run."""

from __future__ import annotations

import os
import tempfile
from array import array
from typing import TYPE_CHECKING, Self

from assay._util.storage import write_error

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = 2**20
"""Bytes to collect before they are written."""


class Spool:
    """An unnamed file of byte strings. However the process ends, nothing is left on disk."""

    def __init__(self, folder: Path | None = None, *, what: str = "a temporary file", kept: str = "") -> None:
        """Open the file.

        Args:
            folder: where; None: in the system's folder for temporary files.
            what: what is written, for messages.
            kept: see :func:`assay._util.storage.write_error`.

        Raises:
            OutputError: there can be no file in the folder.
        """
        self._failure = f"cannot write {what} to {folder or tempfile.gettempdir()}"
        self._kept = kept
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise write_error(self._failure, error, kept) from error
        self._ends = array("q", [0])
        """The file offset at which each byte string ends; the first entry is 0."""
        self._written = 0
        self._unwritten: list[bytes] = []

    def append(self, data: bytes) -> int:
        """Store `data`, and return its number for :meth:`read`.

        Raises:
            OutputError: the disk is full or broken.
        """
        self._unwritten.append(data)
        self._ends.append(self._ends[-1] + len(data))
        if self._ends[-1] - self._written > _BLOCK:
            self._write()
        return len(self._ends) - 2

    def read(self, number: int) -> bytes:
        """The bytes that :meth:`append` stored under a number.

        Raises:
            OutputError: the disk is full or broken.
        """
        if self._unwritten:
            self._write()
        start, end = self._ends[number : number + 2]
        return os.pread(self._file.fileno(), end - start, start)

    def length(self, number: int) -> int:
        """How many bytes :meth:`read` gives."""
        return self._ends[number + 1] - self._ends[number]

    def close(self) -> None:
        """Let go of the file, and of all that is in it."""
        self._file.close()

    def _write(self) -> None:
        rest = memoryview(b"".join(self._unwritten))
        try:
            while rest:
                rest = rest[os.pwrite(self._file.fileno(), rest, self._ends[-1] - len(rest)) :]
        except OSError as error:
            raise write_error(self._failure, error, self._kept) from error
        self._written = self._ends[-1]
        self._unwritten.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
