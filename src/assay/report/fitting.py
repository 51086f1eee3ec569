"""What is too wide for a terminal is shown in another form, because figures that are cut say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.table import Table

_ANY_WIDTH = 100_000


class FirstThatFits:
    """The first of some tables that is not wider than the terminal; where all are, something that folds.

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
        from rich.measure import Measurement

        return Measurement.get(console, options, self._chosen(console, options))

    def _chosen(self, console: Console, options: ConsoleOptions) -> RenderableType:
        unlimited = options.update(max_width=_ANY_WIDTH)
        for table in self._tables:
            if table.__rich_measure__(console, unlimited).maximum <= options.max_width:
                return table
        return self._otherwise
