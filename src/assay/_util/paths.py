"""Paths as people write them."""

from __future__ import annotations

import os
from pathlib import Path


def at_home(path: str | os.PathLike[str]) -> Path:
    """The path, a leading ``~`` or ``~user`` made the home folder; as it is where nobody knows that folder.

    ``Path.expanduser`` raises RuntimeError there: for users that do not exist, and in containers without ``HOME``.
    """
    return Path(os.path.expanduser(path))


def why_unreadable(error: OSError | ValueError) -> str:
    """What kept a file from being opened, in words: the system, or that no path can be like that."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
