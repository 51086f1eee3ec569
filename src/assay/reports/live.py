"""A run in a terminal while it goes on: tasks with their scores so far, checks, rate and time left."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Self

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from assay._util.text import printable
from assay.reports.counting import CountingProgress, opening_line
from assay.reports.wide_tables import FirstThatFits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from rich.console import Console, RenderableType

    from assay.progress import Snapshot, Standing
    from assay.types import Response, Sample

_ROWS = 12
"""Tasks shown at once, at most."""
_LOOKS_A_SECOND = 4
_BAR_WIDTH = 20
_HEADINGS = ("task", "", "samples", "metric", "so far", "95 % interval", "failed")
_NARROW = ("task", "samples", "so far", "95 % interval", "failed")
"""What a narrow terminal shows of it."""


class LiveTable(CountingProgress):
    """Redrawn a few times a second; when the run ends, one line of it stays."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._live = Live(
            console=console, get_renderable=self._picture, refresh_per_second=_LOOKS_A_SECOND, transient=True
        )

    def _begin(self) -> None:
        super()._begin()
        self._snapshot: Snapshot | None = None
        self._expected: dict[str, int] = {}
        self._done: Counter[str] = Counter()

    def __enter__(self) -> Self:
        super().__enter__()
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()
        if self._expected:
            self._console.print(self._status())

    def loaded(self, expected: dict[str, int], kept: int, journal: Path) -> None:
        """Print what is to be done."""
        self._say(opening_line(expected, kept, journal, self._at_most))
        self._expected = expected
        self._started = time.monotonic()

    def watching(self, snapshot: Snapshot) -> None:
        """Take scores and checks from it."""
        self._snapshot = snapshot

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Count the sample."""
        super().completed(sample, responses)
        self._done[sample.task] += 1

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False)

    def _picture(self) -> RenderableType:
        if self._snapshot is None:
            return Text("loading tasks …", style="dim")
        standings = self._snapshot.standings(self._shown())
        checks = [Text(f"check  {printable(line)}") for line in self._snapshot.checks()]
        return Group(_table(map(self._row, standings)), *self._others(), *checks, self._status())

    def _row(self, standing: Standing) -> dict[str, RenderableType]:
        done, of = self._done[standing.task], self._expected[standing.task]
        interval = standing.interval
        return {
            "task": printable(standing.task, 60),
            "": ProgressBar(total=max(of, 1), completed=done, width=_BAR_WIDTH),
            "samples": f"{done}/{of}",
            "metric": "" if standing.metric is None else printable(standing.metric, 60),
            "so far": "" if standing.value is None else f"{standing.value:.4f}",
            "95 % interval": "" if interval is None else f"{interval.low:.4f} – {interval.high:.4f}",
            "failed": Text(str(standing.failed), style="red") if standing.failed else "",
        }

    def _shown(self) -> Sequence[str]:
        """Tasks under way first, then those that are done; in the run's order."""
        names = list(self._expected)
        wanted = frozenset(sorted(names, key=self._stage)[:_ROWS])
        return [name for name in names if name in wanted]

    def _stage(self, task: str) -> int:
        done = self._done[task]
        return 2 if not done else 1 if done >= self._expected[task] else 0

    def _others(self) -> list[Text]:
        names = list(self._expected)
        hidden = len(names) - _ROWS
        if hidden <= 0:
            return []
        finished = sum(self._stage(name) == 1 for name in names)
        return [Text(f"… and {hidden} more; {finished} of {len(names)} tasks are done", style="dim")]

    def _status(self) -> Text:
        seconds = time.monotonic() - self._started
        done, of = self._done.total(), sum(self._expected.values())
        text = Text(", ".join(self._status_words(done, of, seconds)))
        return text.append(f", {self._failed} failed", style="red") if self._failed else text


def _table(rows: Iterable[dict[str, RenderableType]]) -> RenderableType:
    kept = list(rows)
    return FirstThatFits(_table_of(kept, _HEADINGS), otherwise=_table_of(kept, _NARROW))


def _table_of(rows: Sequence[dict[str, RenderableType]], headings: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        # Only the task's name may fold: figures that are cut say nothing.
        is_figure = heading not in ("task", "", "metric")
        table.add_column(heading, justify="right" if is_figure else "left", no_wrap=heading != "task")
    for row in rows:
        table.add_row(*(row[heading] for heading in headings))
    return table
