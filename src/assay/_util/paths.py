"""Paths as people write them."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def at_home(path: str | os.PathLike[str]) -> Path:
    """The path, a leading ``~`` or ``~user`` made the home folder; as it is where nobody knows that folder.

    ``Path.expanduser`` raises RuntimeError there: for users that do not exist, and in containers without ``HOME``.
    """
    return Path(os.path.expanduser(path))


@contextmanager
def keep_working_directory() -> Iterator[None]:
    """Return to the working directory when this block ends: what runs in it, as a task's own code, may leave it."""
    try:
        here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))  # a name may lead elsewhere by then, or nowhere
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
    """What kept a file from being opened, in words: the system, or that no path can be like that."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
