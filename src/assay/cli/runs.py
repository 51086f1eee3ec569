"""``assay runs`` and ``assay clean``: what a folder of results holds, and which journals are no longer needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli.remarks import remark

if TYPE_CHECKING:
    from rich.table import Table

    from assay.runs.listing import ListedRun

_SCORES_SHOWN = 3


@click.command(short_help="List the runs of a folder, newest first.")
@click.argument("folder", default="results", type=click.Path(path_type=Path), metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def runs(folder: Path, as_json: bool) -> None:
    """List the runs in DIR (results, if left out), newest first: when, what, scores, verdict, state, size.

    Other commands take a run by its place here: last, last~1, or the beginning of its time.

    \b
    Example:
      assay runs
      assay show last~1 --wrong
    """
    from assay._util.json_text import json_line
    from assay.runs.listing import list_runs

    listed = list_runs(folder)
    if as_json:
        for run in listed:
            print(json_line(run))
        return
    from assay.cli.consoles import OutputConsole

    OutputConsole().print(_table(listed))


def _table(listed: list[ListedRun]) -> Table:
    from rich.table import Table

    from assay._util.text import printable

    table = Table(box=None, pad_edge=False)
    for heading in ("run", "time", "model", "tasks", "score", "verdict", "state", "size"):
        table.add_column(heading, justify="right" if heading == "size" else "left", no_wrap=heading in ("run", "time"))
    for number, run in enumerate(listed):
        table.add_row(
            f"last~{number}" if number else "last",
            run.time.partition(".")[0],
            printable(run.model),
            printable(", ".join(run.tasks)),
            _scores(run),
            "" if run.verdict is None else run.verdict,
            printable(run.state, 60),
            _size(run.bytes),
        )
    return table


def _scores(run: ListedRun) -> str:
    shown = ["–" if score.value is None else f"{score.value:.4f}" for score in run.scores[:_SCORES_SHOWN]]
    return ", ".join(shown) + (" …" if len(run.scores) > _SCORES_SHOWN else "")


@click.command(short_help="Remove journals of finished runs.")
@click.argument("folder", default="results", type=click.Path(path_type=Path), metavar="[DIR]")
@click.option("--yes", is_flag=True, help="Remove them; without this they are only listed.")
def clean(folder: Path, yes: bool) -> None:
    """List the journals of finished runs in DIR (results, if left out), and remove them if told to.

    Results, samples and reports stay. What only a journal holds goes: reasoning, times and token counts of answers.
    Journals of runs that can be resumed are never touched.
    """
    from assay.errors import FileFormatError
    from assay.journal.files import remove_finished
    from assay.runs.listing import list_journals

    if not folder.is_dir():
        raise FileFormatError(f"there is no folder {folder}")
    journals = list_journals(folder)
    finished = [journal for journal in journals if journal.is_finished]
    removed = [journal for journal in finished if not yes or remove_finished(Path(journal.file))]
    for journal in removed:
        print(f"{_size(journal.bytes):>9}  {journal.file}")
    total = _size(sum(journal.bytes for journal in removed))
    kept = len(journals) - len(removed)
    also = f"; {kept} of runs that can be resumed stay" if kept else ""
    if yes:
        remark(f"removed {len(removed)} journals, {total}{also}")
    else:
        remark(f"{len(removed)} journals of finished runs, {total}{also}; assay clean {folder} --yes removes them")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError(size)
