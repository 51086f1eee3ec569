"""What ``assay helm`` shows: statistics on stdout, remarks on stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from assay.cli.remarks import remark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.helm.evaluation import Evaluated
    from assay.helm.stats import Stat

_LINES_SHOWN = 5


def print_stats(stats: Sequence[Stat], as_json: bool, show_all: bool) -> None:
    """Show statistics on stdout, as a table or as JSON."""
    from assay.helm.stats import is_finite

    if as_json:
        from assay.helm.structs import dump_json

        print(dump_json([stat.to_builtins() for stat in stats if is_finite(stat)]).decode())
        return
    from assay.cli.consoles import OutputConsole
    from assay.helm.show import main_stats, stats_table

    shown = stats if show_all else main_stats(stats)
    OutputConsole().print(stats_table(shown))
    if stats and not shown:
        remark("there is no score among the statistics; assay helm show --all shows them")


def remark_lines(lines: Sequence[str]) -> None:
    """Print lines on stderr."""
    from assay._util.text import printable

    for line in lines:
        remark(printable(line))


def remark_evaluated(evaluated: Evaluated) -> None:
    """Say what could not be scored."""
    shown = evaluated.unscored[:_LINES_SHOWN]
    if evaluated.unscored:
        remark(f"{len(evaluated.unscored)} instances could not be scored:")
        remark_lines([f"  {line}" for line in shown])
    if len(evaluated.unscored) > len(shown):
        remark(f"  … and {len(evaluated.unscored) - len(shown)} more")
    if evaluated.duplicate_names:
        remark_lines([f"given by more than one metric: {', '.join(evaluated.duplicate_names)}"])


@contextmanager
def counting() -> Iterator[Callable[[int], None]]:
    """Count requests in a line on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    def tell(count: int) -> None:
        print(f"\r{count:,} requests", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        print(file=sys.stderr)
