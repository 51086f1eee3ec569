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

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by __exit__
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

    def _write(self) -> None:
        rest = memoryview(b"".join(self._unwritten))
        try:
            while rest:
                rest = rest[os.pwrite(self._file.fileno(), rest, self._ends[-1] - len(rest)) :]
        except OSError as error:
            raise write_error(
                f"cannot write scored samples to {self._folder}", error, "the run's answers are kept in its journal"
            ) from error
        self._written = self._ends[-1]
        self._unwritten.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
