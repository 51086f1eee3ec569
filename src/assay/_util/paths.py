"""Helpers for paths: home folders, the working directory, why a file cannot be read."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Expand a leading ``~`` or ``~user``; leave the path unchanged if the home folder is unknown.

    ``Path.expanduser`` raises RuntimeError instead: for users that do not exist, and in containers without ``HOME``.
    """
    return Path(os.path.expanduser(path))


@contextmanager
def keep_working_directory() -> Iterator[None]:
    """Restore the working directory when this block ends: code in it, such as a task's, may change it."""
    try:
        here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))  # its path may have been moved or removed by then
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            os.fchdir(here)
        os.close(here)


def why_unreadable(error: OSError | ValueError) -> str:
    """Why a file could not be opened: the system's reason, or ValueError's for a path that is not valid."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
