"""A run's progress on stderr: a live table on a terminal, a quiet line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from assay.reports.counting import CountingProgress, opening_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.progress import Progress
    from assay.types import Response, Sample

_LINE_EVERY_SECONDS = 30.0


def show_progress(stream: TextIO | None = None) -> Progress:
    """Make a display of progress: a live table on a terminal, plain lines elsewhere.

    Args:
        stream: where; None: standard error.
    """
    target = stream or sys.stderr
    if not target.isatty():
        return ProgressLines(target)
    from rich.console import Console

    from assay.reports.live import LiveTable

    return LiveTable(Console(file=target))


class ProgressLines(CountingProgress):
    """Plain lines: at the start, every half minute, and at the end."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def _begin(self) -> None:
        super()._begin()
        self._expected = self._done = 0

    def loaded(self, expected: dict[str, int], kept: int, journal: Path) -> None:
        """Print what is to be done."""
        self._expected = sum(expected.values())
        self._started = self._last = time.monotonic()
        self._say(opening_line(expected, kept, journal, self._at_most))

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Count the sample, and print a line from time to time."""
        super().completed(sample, responses)
        self._done += 1
        now = time.monotonic()
        if self._done == self._expected or now - self._last >= _LINE_EVERY_SECONDS:
            self._last = now
            self._say(self._status(now - self._started))

    def _status(self, seconds: float) -> str:
        words = self._status_words(self._done, self._expected, seconds)
        return ", ".join([*words, *([f"{self._failed} failed"] if self._failed else [])])

    def _say(self, line: str) -> None:
        with suppress(OSError, ValueError):  # a run goes on when its output is closed
            print(line, file=self._stream, flush=True)
