"""Saves a run as a baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

from pathlib import Path

import msgspec

from assay.errors import SpecificationError
from assay.runs.baseline import write_baseline
from assay.runs.files import read_run, whole_run_hint
from assay.runs.record import RecordedRun, with_tasks


class SavedBaseline(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline that was written."""

    file: Path
    tasks: tuple[str, ...]
    documents: int
    """How many, in all tasks."""
    left_out: tuple[str, ...]
    """Scores that are not in it because they are not means over documents, as ``"<task> <metric>,<filter>"``."""


def save_baseline(
    run: RecordedRun | str | Path, file: str | Path, *, with_texts: bool = False, tasks: Sequence[str] = ()
) -> SavedBaseline:
    """Save the scores, hashes and versions of a run, to compare later runs with. The file is made for git.

    Args:
        run: a results file, a samples file or a folder of results (its newest run), of Assay or lm-eval; or the result
            of :func:`assay.read_run`.
        file: the baseline file to write.
        with_texts: keep the answers' texts too, for reports of flipped answers; makes the file large.
        tasks: the tasks and groups to keep; all if empty.

    Raises:
        FileFormatError: the run is missing or damaged.
        SpecificationError: the run cannot be a baseline: it was stopped early, has no scores, or lacks a task of
            `tasks`.
        OutputError: the file cannot be written.
    """
    read = with_tasks(run if isinstance(run, RecordedRun) else read_run(run), tasks)
    try:
        write_baseline(read, file, with_texts=with_texts)
    except SpecificationError as error:
        if not read.stopped_early:
            raise
        raise SpecificationError(f"{error}{whole_run_hint(read.source)}") from None
    kept = read.tasks.values()
    return SavedBaseline(
        file=Path(file),
        tasks=tuple(read.tasks),
        documents=read.documents,
        left_out=tuple(f"{task.name} {key}" for task in kept for key in task.values if key not in task.scores),
    )
