"""A place on disk for what is too large to keep in memory until the end of a run."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path


class Spool:
    """An unnamed file that holds byte strings and leaves nothing behind, whatever ends the process."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._end = 0

    def append(self, data: bytes) -> int:
        """Keep `data`; the number that comes back is for :meth:`read`."""
        place = self._end
        self._file.seek(place)
        self._file.write(len(data).to_bytes(8, "little"))
        self._file.write(data)
        self._end += 8 + len(data)
        return place

    def read(self, place: int) -> bytes:
        """The bytes that :meth:`append` was given."""
        self._file.seek(place)
        size = int.from_bytes(self._file.read(8), "little")
        return self._file.read(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
