"""The log file of a run of one task: ``<results_dir>/<task>_lm_eval.log``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from assay._util.storage import write_error

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST_NAME = 255
"""Bytes of a file's name, at most, on nearly all file systems."""


def make_log(results_dir: Path, task: str) -> Path:
    """Make the log's file, and the folder that it lies in.

    Raises:
        OutputError: it cannot be made.
    """
    log = results_dir / _log_name(task)
    try:
        results_dir.mkdir(parents=True, exist_ok=True)
        log.touch()
    except OSError as error:
        raise write_error(f"cannot write to the output directory {results_dir}", error) from None
    return log


def _log_name(task: str) -> str:
    """The log's name; one of very many tasks is cut."""
    ending = "_lm_eval.log"
    name = re.sub(r"[^\w.,-]", "_", task).encode()[: _LONGEST_NAME - len(ending)]
    return name.decode(errors="ignore") + ending
