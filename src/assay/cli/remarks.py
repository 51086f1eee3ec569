"""Prints remarks on standard error; that it is closed changes no exit code."""

from __future__ import annotations

import contextlib
import sys


def remark(*lines: str) -> None:
    """Print lines on standard error, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        for line in lines:
            print(line, file=sys.stderr)


def remark_partial_runs(*runs: str | None) -> None:
    """Remark on each folder of results whose newest run was stopped early."""
    from assay.runs.files import stopped_early_remark

    for run in runs:
        if run is not None and (words := stopped_early_remark(run)):
            remark(f"{run}: {words}")
