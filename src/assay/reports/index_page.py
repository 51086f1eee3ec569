"""An HTML page of all runs in a folder: their scores, newest first, each run linked to its report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from assay._util.storage import write_whole
from assay.errors import AssayError
from assay.reports.html import report_file, write_report
from assay.reports.page import outline
from assay.reports.templates import environment, joined, policy
from assay.results.reading import read_results
from assay.runs.listing import list_runs

if TYPE_CHECKING:
    from assay.results.check_results import Verdict
    from assay.runs.listing import ListedRun
    from assay.scoring.measure import Score

_STYLES, _SCRIPTS = ("page.css",), ("index.js",)
INDEX = "index.html"


class IndexedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the index shows it."""

    time: str
    model: str
    verdict: Verdict | None
    state: str
    scores: list[Score]
    """Of groups, and of tasks that are in no group with a score."""
    report: str | None
    """The address of its report, from the index; None if it has none."""


def write_index(folder: Path, output: Path | None = None) -> Path:
    """Write a page of all runs in a folder. Runs without a report get one.

    A run that cannot be read is listed with the reason.

    Args:
        folder: an output directory or a model's folder.
        output: the file to write; None: ``index.html`` in `folder`.

    Returns:
        The file.

    Raises:
        FileFormatError: there is no run.
        OutputError: the page cannot be written.
    """
    file = output or folder / INDEX
    style, script = joined(_STYLES), joined(_SCRIPTS)
    page = (
        environment()
        .get_template("index.html.j2")
        .render(
            folder=str(folder),
            runs=[_indexed(run, file.parent) for run in list_runs(folder)],
            style=style,
            script=script,
            policy=policy([script], style),
        )
    )
    return write_whole(file, page.encode("utf-8", "backslashreplace"))


def _indexed(run: ListedRun, place: Path) -> IndexedRun:
    file, state = Path(run.file), run.state
    scores: list[Score] = []
    report = None
    try:
        scores = outline(file, read_results(file)).main_scores
        report = _report_of(file)
    except AssayError as error:
        state = str(error)
    return IndexedRun(
        time=run.time.partition(".")[0],
        model=run.model,
        verdict=run.verdict,
        state=state,
        scores=scores,
        report=None if report is None else quote(os.path.relpath(report, place)),
    )


def _report_of(file: Path) -> Path:
    report = report_file(file)
    return report if report.exists() else write_report(file)
