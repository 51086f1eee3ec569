"""A run's progress on stderr: a live bar on a terminal, a quiet line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from assay.progress import Progress
from assay.report.text import printable
from assay.types import Answer, Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from assay.tasks.requests import Sample

_LINE_EVERY_SECONDS = 30.0
_LONGEST_REMARK = 600


@contextmanager
def watch(stream: TextIO | None = None) -> Iterator[Progress]:
    """Show the progress of the run in this block on `stream` (stderr by default)."""
    target = stream or sys.stderr
    if not target.isatty():
        yield ProgressLines(target)
        return
    from rich.console import Console

    bar = ProgressBar(Console(file=target))
    with bar.live:
        yield bar


@contextmanager
def quietly() -> Iterator[Progress]:
    """Show nothing."""
    yield Progress()


class ProgressLines(Progress):
    """Plain lines: at the start, every half minute, and at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._expected = self._done = self._failed = self._asked = 0
        self._limit = 0
        self._started = self._last = time.monotonic()

    def loaded(self, expected: dict[str, int], kept: int, journal: Path) -> None:
        """Say what is to be done."""
        self._expected = sum(expected.values())
        self._started = self._last = time.monotonic()
        self._say(opening_line(expected, kept, journal))

    def noted(self, remark: str) -> None:
        """Say it."""
        self._say(printable(remark, _LONGEST_REMARK))

    def limited(self, limit: int) -> None:
        """Keep it for the next line."""
        self._limit = limit

    def responded(self, request: Any, response: Response) -> None:  # noqa: ARG002
        """Count."""
        self._asked += 1
        self._failed += not isinstance(response, Answer)

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:  # noqa: ARG002
        """Count, and say so from time to time."""
        self._done += 1
        now = time.monotonic()
        if self._done == self._expected or now - self._last >= _LINE_EVERY_SECONDS:
            self._last = now
            self._say(self._status(now - self._started))

    def _status(self, seconds: float) -> str:
        rate = self._asked / seconds if seconds > 0 else 0.0
        left = self._expected - self._done
        remaining = f", {_duration(left * seconds / self._done)} left" if left and self._done else ""
        failed = f", {self._failed} failed" if self._failed else ""
        return (
            f"{self._done} of {self._expected} samples, {rate:.1f} requests/s, {self._limit} at once{failed}{remaining}"
        )

    def _say(self, line: str) -> None:
        with suppress(OSError, ValueError):  # a run goes on when nobody reads what it says
            print(line, file=self._stream, flush=True)


class ProgressBar(Progress):
    """One live bar over all tasks, with rate and time left."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self.live = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("[red]{task.fields[failed]}"),
            console=console,
        )
        self._bar = self.live.add_task("loading tasks", total=None, rate="", failed="")
        self._asked = self._failed = self._limit = 0
        self._started = time.monotonic()

    def loaded(self, expected: dict[str, int], kept: int, journal: Path) -> None:
        """Give the bar its length."""
        self.live.console.print(opening_line(expected, kept, journal), highlight=False, markup=False)
        self._started = time.monotonic()
        self.live.update(self._bar, description="samples", total=sum(expected.values()))

    def noted(self, remark: str) -> None:
        """Say it above the bar."""
        self.live.console.print(printable(remark, _LONGEST_REMARK), highlight=False, markup=False)

    def limited(self, limit: int) -> None:
        """Keep it, to be shown beside the rate."""
        self._limit = limit

    def responded(self, request: Any, response: Response) -> None:  # noqa: ARG002
        """Count requests and failures."""
        self._asked += 1
        self._failed += not isinstance(response, Answer)
        seconds = time.monotonic() - self._started
        rate = f"{self._asked / seconds:.1f} requests/s, {self._limit} at once" if seconds > 0 else ""
        failed = f"{self._failed} failed" if self._failed else ""
        self.live.update(self._bar, rate=rate, failed=failed)

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:  # noqa: ARG002
        """Move the bar."""
        self.live.advance(self._bar)


def opening_line(expected: dict[str, int], kept: int, journal: Path) -> str:
    """What a run is about to do, in one line."""
    tasks = f"{len(expected)} tasks" if len(expected) != 1 else next(iter(expected))
    resumed = f", going on with {kept} answers kept in {journal}" if kept else ""
    return f"{tasks}: {sum(expected.values())} samples{resumed}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
