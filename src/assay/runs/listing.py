"""Lists the runs in a folder: time, tasks, scores, verdict and disk space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.errors import AssayError, FileFormatError
from assay.journal.files import find_journals, is_finished
from assay.results.check_results import Verdict, worst
from assay.results.reading import read_results
from assay.results.sample_files import time_stamp
from assay.runs.files import results_files
from assay.scoring.measure import Score  # noqa: TC001 - msgspec resolves the annotations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a folder of results."""

    time: str
    """The time in the names of its files."""
    model: str
    tasks: tuple[str, ...]
    """The tasks and groups named by the user."""
    scores: tuple[Score, ...]
    """One for each task and group: the first metric that it reports."""
    verdict: Verdict | None
    """None: the run had no checks."""
    state: str
    """``whole``, ``stopped early``, ``N failed``, or why its file cannot be read."""
    bytes: int
    """Size of all its files, with the journal."""
    file: str


class KeptJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A run's journal."""

    file: str
    bytes: int
    is_finished: bool
    """Whether the run has written its results; then no run resumes it."""


def list_runs(folder: str | Path) -> list[ListedRun]:
    """The runs in an output directory or in a model's folder, newest first.

    Raises:
        FileFormatError: there is no run.
    """
    files = sorted(results_files(Path(folder)), key=lambda file: file.name, reverse=True)
    if not files:
        raise FileFormatError(f"there is no run in {folder}: no results_*.json there or one folder below")
    return [_listed(file) for file in files]


def list_journals(folder: str | Path) -> list[KeptJournal]:
    """The journals in an output directory or a model's folder, oldest first."""
    place = Path(folder)
    folders = [place / "journal", *sorted(place.glob("*/journal"))]
    return [
        KeptJournal(file=str(file), bytes=total_size([file]), is_finished=is_finished(file))
        for journals in folders
        for file in find_journals(journals)
    ]


def _listed(file: Path) -> ListedRun:
    time = time_stamp(file) or ""
    files = [*file.parent.glob(f"*_{time}.*")]
    try:
        document = read_results(file)
    except AssayError as error:
        return ListedRun(
            time=time,
            model=file.parent.name,
            tasks=(),
            scores=(),
            verdict=None,
            state=str(error),
            bytes=total_size(files),
            file=str(file),
        )
    journal = document.provenance.journal
    additions = document.additions
    failed = len(additions.failures or ())
    early = "stopped early" if additions.early_stopping is not None else "whole"
    asked = (document.provenance.specification or {}).get("tasks")
    return ListedRun(
        time=time,
        model=document.model_name or "?",
        tasks=tuple(asked) if asked else tuple(document.results),
        scores=tuple(_first_of_each(additions.scores or ())),
        verdict=worst(additions.checks) if additions.checks else None,
        state=f"{failed} failed" if failed else early,
        bytes=total_size([*files, *([file.parent / "journal" / journal] if journal else [])]),
        file=str(file),
    )


def total_size(files: Iterable[Path]) -> int:
    """The size in bytes of those files that exist."""
    return sum(file.stat().st_size for file in files if file.exists())


def _first_of_each(scores: tuple[Score, ...]) -> Iterator[Score]:
    seen: set[str] = set()
    for score in scores:
        if score.task not in seen:
            seen.add(score.task)
            yield score
