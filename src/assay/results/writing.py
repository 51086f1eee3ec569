"""Writes lm-eval's result files: ``results_<time>.json`` and ``samples_<task>_<time>.jsonl``.

Folders, names, keys and values are lm-eval's; Assay's additions are under the key ``assay``.
"""

from __future__ import annotations

import io
import os
import signal
import threading
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay._util.paths import keep_working_directory
from assay._util.storage import write_error, write_whole
from assay._util.text import printable
from assay.errors import OutputError, SpecificationError, TaskConfigError
from assay.results.document import ResultsDocument, ScoredSections
from assay.results.sample_files import may_name_file
from assay.tasks.lm_eval_json import as_written, lm_eval_json
from assay.tasks.task_errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from assay.scoring.task_scores import TaskScores
    from assay.tasks.library import LoadedTasks

_KEPT = "the run's answers are kept in its journal"
_DATE_ID = "%Y-%m-%dT%H-%M-%S.%f"
_LONGEST_NAME = 255
"""Bytes, on the usual file systems."""
BOOTSTRAP_ITERATIONS = 100_000
"""lm-eval's default, used where it has no formula for a metric's standard error."""


def model_folder(output_dir: str | Path, model: str) -> Path:
    """The folder of one model's results, named as lm-eval names it.

    Raises:
        SpecificationError: no folder can have the model's name.
    """
    from lm_eval.utils import sanitize_model_name

    name = str(sanitize_model_name(model))
    if not _may_name_folder(name):
        raise SpecificationError(f"no folder can be named after the model '{printable(model)}'")
    return Path(output_dir) / name


def _may_name_folder(name: str) -> bool:
    try:
        return name not in ("", ".", "..") and "\0" not in name and len(os.fsencode(name)) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


@keep_working_directory()
def aggregate(tasks: Mapping[str, TaskScores], loaded: LoadedTasks) -> ScoredSections:
    """The sections that lm-eval computes from samples.

    Raises:
        TaskConfigError: the aggregation of a task or group fails.
    """
    from lm_eval.evaluator_utils import EvalAcc, _collect_results, aggregate_groups

    aggregated = EvalAcc(groups=loaded.groups)
    # lm-eval's bootstrap prints, and its child processes write tracebacks when they are ended.
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), _ended_by_sigterm():
        for name, scores in tasks.items():
            scores.fail_what_cannot_be_aggregated()
            collected = {"task": scores.task, "raw_metrics": scores.raw_metrics(), "logged_samples": []}
            with _blamed_on(f"task {name!r}"):
                of_task = _collect_results({name: collected}, None, BOOTSTRAP_ITERATIONS)
            for section in ("metrics", "configs", "versions", "num_fewshot", "higher_is_better", "n_samples"):
                getattr(aggregated, section).update(getattr(of_task, section))
        with _blamed_on(f"group {', '.join(map(repr, loaded.groups))}"):
            aggregate_groups(aggregated)
            sections = aggregated._to_eval_results()
    return msgspec.convert(as_written(sections), ScoredSections)


@contextmanager
def _blamed_on(what: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise TaskConfigError(
            f"{what}: the scores cannot be aggregated: {describe_error(error)}; the answers are kept: fix "
            "this, then run the same command again"
        ) from error


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process and its children at once, in place of the present handler.

    The pool of lm-eval's bootstrap ends its processes with SIGTERM and waits for them. Python runs a handler only
    between two of its own instructions, so a handler that a child inherits may never run: the child waits in a system
    call.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def write_results(folder: Path, date_id: str, document: ResultsDocument, tasks: Mapping[str, TaskScores]) -> Path:
    """Write the samples files, then the results file; each appears under its name only when it is complete.

    Args:
        folder: the model's folder.
        date_id: the time in the files' names, as lm-eval writes it.
        document: the whole results document.
        tasks: the samples to write, by task.

    Returns:
        The results file.

    Raises:
        OutputError: a file cannot be written.
    """
    for name, scores in tasks.items():
        write_whole(folder / f"samples_{name}_{date_id}.jsonl", scores.sample_lines(), kept=_KEPT)
    return write_document(folder / f"results_{date_id}.json", document)


def write_document(file: Path, document: ResultsDocument) -> Path:
    """Write a results file, or replace it.

    Raises:
        OutputError: it cannot be written.
    """
    content = lm_eval_json(document.as_json(), indent=2).encode("utf-8", "backslashreplace")
    return write_whole(file, content, kept=_KEPT)


def refuse_unwritable(tasks: Iterable[str]) -> None:
    """Refuse tasks whose names cannot be part of a file's name, before any request.

    Raises:
        TaskConfigError: names the task.
    """
    for name in tasks:
        if not may_name_file(name):
            raise TaskConfigError(
                f"task {name!r} cannot have a samples file: its name is no file name; --no-log-samples (log_samples = "
                "false) writes none"
            )


def new_date_id(folder: Path) -> str:
    """The time in the names of a new run's files, as in lm-eval: local time, with dashes in place of colons.

    Names tell which run is the newest. So if the clock was set back or summer time ended, this is a moment after the
    newest run in the folder.
    """
    now = datetime.now().strftime(_DATE_ID)
    newest = max((file.stem.removeprefix("results_") for file in folder.glob("results_*.json")), default="")
    if newest < now:
        return now
    try:
        return (datetime.strptime(newest, _DATE_ID) + timedelta(microseconds=1)).strftime(_DATE_ID)
    except (ValueError, OverflowError):  # another program's file
        return now


def ensure_writable(folder: Path) -> None:
    """Create a folder for results if it does not exist.

    Raises:
        OutputError: it cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(f"cannot create the output directory {folder}", error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"the output directory {folder} is not writable")
