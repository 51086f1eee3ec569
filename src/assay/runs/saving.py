"""A run kept as a baseline."""

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
    """A run's scores and hashes, written to a small file."""

    file: Path
    tasks: tuple[str, ...]
    documents: int
    """Of all tasks together."""
    left_out: tuple[str, ...]
    """Scores that are no means over documents and are not kept, as ``"<task> <metric>,<filter>"``."""


def save_baseline(
    run: RecordedRun | str | Path, file: str | Path, *, with_texts: bool = False, tasks: Sequence[str] = ()
) -> SavedBaseline:
    """Keep the scores, hashes and versions of a run in a file made to be kept in git, to compare later runs with.

    Args:
        run: a results file, a samples file or a folder of results (its newest run), Assay's or lm-eval's; or what
            :func:`assay.read_run` has read of one.
        file: where the baseline goes.
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
