"""Remarks on standard error, which change no exit code when nobody reads them."""

from __future__ import annotations

import contextlib
import sys


def remark(*lines: str) -> None:
    """Say lines on standard error, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        for line in lines:
            print(line, file=sys.stderr)
