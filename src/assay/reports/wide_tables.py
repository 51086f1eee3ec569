"""Shows tables that are too wide for the terminal in another form, because figures that are cut say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from assay._util.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

_ANY_WIDTH = 100_000


def fitting_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, names: int) -> FirstThatFits:
    """A table; in a terminal that is too narrow for it, a few lines a row.

    Args:
        headings: one a column.
        rows: their cells.
        names: how many of the first columns say what a row is about; the others are figures.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < names else "right")
    lines = []
    for row in rows:
        cells = [printable(cell) for cell in row]
        table.add_row(*cells)
        figures = [f"{heading} {cell}" for heading, cell in zip(headings, cells, strict=True) if cell][names:]
        lines += [Text(" ".join(cells[:names])), Text(f"  {', '.join(figures)}")]
    return FirstThatFits(table, otherwise=Group(*lines))


class FirstThatFits:
    """Shows the first of some tables that fits the terminal; if none does, something that folds.

    Args:
        tables: from the fullest to the narrowest.
        otherwise: what may be folded at any width.
    """

    def __init__(self, *tables: Table, otherwise: RenderableType) -> None:
        self._tables = tables
        self._otherwise = otherwise

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self._chosen(console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._chosen(console, options))

    def _chosen(self, console: Console, options: ConsoleOptions) -> RenderableType:
        unlimited = options.update(max_width=_ANY_WIDTH)
        for table in self._tables:
            if table.__rich_measure__(console, unlimited).maximum <= options.max_width:
                return table
        return self._otherwise
