"""The console on standard output."""

from __future__ import annotations

import sys

from rich.console import Console

from assay.cli import discard_stdout


class OutputConsole(Console):
    """As wide as the terminal; 220 columns where there is none, because folded columns make a log hard to read."""

    def __init__(self) -> None:
        super().__init__(width=None if sys.stdout.isatty() else 220, highlight=False, markup=False)

    def on_broken_pipe(self) -> None:
        """Raise ``BrokenPipeError``; rich would end with exit code 1, which means that a check is not met."""
        discard_stdout()
        raise BrokenPipeError
