"""All runs of a folder: when, what, which scores and verdict, and how much room they take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.errors import AssayError, FileFormatError
from assay.journal.files import find_journals, is_finished
from assay.results.reading import read_results
from assay.results.sample_files import time_stamp
from assay.results.verdicts import Verdict, worst
from assay.runs.files import results_files
from assay.scoring.measure import Score  # noqa: TC001 - msgspec resolves the annotations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is in a folder of results."""

    time: str
    """In its files' names."""
    model: str
    tasks: tuple[str, ...]
    """Tasks and groups, as they were asked for."""
    scores: tuple[Score, ...]
    """One of each task and group: the first metric that it reports."""
    verdict: Verdict | None
    """None: it had no checks."""
    state: str
    """``whole``, ``stopped early``, ``N failed``, or why its file cannot be read."""
    bytes: int
    """Of all its files, its journal among them."""
    file: str


class KeptJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A run's journal."""

    file: str
    bytes: int
    is_finished: bool
    """The run has all its results, so that nobody goes on with it."""


def list_runs(folder: str | Path) -> list[ListedRun]:
    """The runs in a folder of results, in a model's folder of it or in the folders of all models; the newest first.

    Raises:
        FileFormatError: there is none.
    """
    files = sorted(results_files(Path(folder)), key=lambda file: file.name, reverse=True)
    if not files:
        raise FileFormatError(f"there is no run in {folder}: no results_*.json there or one folder below")
    return [_listed(file) for file in files]


def list_journals(folder: str | Path) -> list[KeptJournal]:
    """The journals in a folder of results, the oldest first."""
    place = Path(folder)
    folders = [place / "journal", *sorted(place.glob("*/journal"))]
    return [
        KeptJournal(file=str(file), bytes=size_of([file]), is_finished=is_finished(file))
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
            bytes=size_of(files),
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
        bytes=size_of([*files, *([file.parent / "journal" / journal] if journal else [])]),
        file=str(file),
    )


def size_of(files: Iterable[Path]) -> int:
    """Bytes of those that are there."""
    return sum(file.stat().st_size for file in files if file.exists())


def _first_of_each(scores: tuple[Score, ...]) -> Iterator[Score]:
    seen: set[str] = set()
    for score in scores:
        if score.task not in seen:
            seen.add(score.task)
            yield score
