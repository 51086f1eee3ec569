"""Remarks on standard error, which change no exit code when nobody reads them."""

from __future__ import annotations

import contextlib
import sys


def remark(*lines: str) -> None:
    """Say lines on standard error, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        for line in lines:
            print(line, file=sys.stderr)


def remark_parts(*runs: str | None) -> None:
    """Say of folders of results, as they are named on the command line, where their newest run was stopped early."""
    from assay.runs.files import stopped_early_remark

    for run in runs:
        if run is not None and (words := stopped_early_remark(run)):
            remark(f"{run}: {words}")
