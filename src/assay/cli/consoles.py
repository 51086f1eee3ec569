"""The console on standard output."""

from __future__ import annotations

import sys

from rich.console import Console

from assay.cli import leave_pipe


class OutputConsole(Console):
    """As wide as the terminal; as wide as the table needs where there is none: a log is no place to fold columns."""

    def __init__(self) -> None:
        super().__init__(width=None if sys.stdout.isatty() else 220, highlight=False, markup=False)

    def on_broken_pipe(self) -> None:
        """Say that nobody reads any more; rich would end with exit code 1, which means that a check is not met."""
        leave_pipe()
        raise BrokenPipeError
