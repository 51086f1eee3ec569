"""Packages that lm-eval's process has and Assay's has not."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

FOR_LM_EVAL = Path(".venv/for-lm-eval")
"""Where ``make`` puts them: transformers, with which lm-eval splits prompts into tokens."""


@contextlib.contextmanager
def packages_for_children(folder: Path) -> Iterator[None]:
    """Let child processes import what is in `folder`, and this one not."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = python_path(folder)
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def python_path(folder: Path) -> str:
    """``PYTHONPATH`` with `folder` at its end."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder.absolute())]))
