"""Remembers which sample was being scored when a run's process died, so that its scorer does not kill it for ever."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_DEATHS = 2


class ScoringDeaths:
    """A file beside a run's journal: a line for each sample that was being scored when the process died.

    It costs two small writes a sample, and is for scorers that come with a task. Where it cannot be written, nothing
    is remembered: the run does without.
    """

    def __init__(self, path: Path, *, forget: bool = False) -> None:
        """Read the file, if there is one.

        Args:
            path: the file; it is made when the first sample is scored.
            forget: whether to score again what has led to the process's death twice.
        """
        self._path = path
        self._deaths = Counter(() if forget else _read(path))
        self._kept = "".join(f"{sample}\n" for sample in self._deaths.elements()).encode()
        self._file: int | None = None

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Whoever leaves this block in whatever way has not died of a scorer."""
        try:
            yield
        finally:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            with contextlib.suppress(OSError):
                if self._deaths:
                    os.truncate(self._path, len(self._kept))
                else:
                    self._path.unlink(missing_ok=True)

    def refusal(self, task: str, doc_id: int) -> str | None:
        """Why a sample is not to be scored any more; None if it is."""
        deaths = self._deaths[_name(task, doc_id)]
        if deaths < _MOST_DEATHS:
            return None
        return (
            f"Assay's process died {deaths} times while this sample was scored; it is not scored again "
            "(--retry-failed does)"
        )

    @contextlib.contextmanager
    def scoring(self, task: str, doc_id: int) -> Iterator[None]:
        """In this block a sample is scored."""
        line = f"{_name(task, doc_id)}\n".encode()
        self._write(line)
        try:
            yield
        finally:
            self._write(b" " * (len(line) - 1) + b"\n")

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
                os.pwrite(self._file, self._kept, 0)
            os.pwrite(self._file, line, len(self._kept))


def _name(task: str, doc_id: int) -> str:
    return f"{task!r} {doc_id}"


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    return [line for line in lines if line.strip()]
