"""Where Assay keeps what it can compute again: one folder a user, safe to delete at any time."""

from __future__ import annotations

import atexit
import os
import secrets
import tempfile
from pathlib import Path

from assay._util.paths import at_home
from assay._util.storage import replace_whole


def cache_dir() -> Path:
    """Return the folder for cached files; it need not exist.

    It is ``$ASSAY_CACHE_DIR``, else ``$XDG_CACHE_HOME/assay``, else ``~/.cache/assay``; for a user without a home, a
    folder of their own among the temporary files.
    """
    if own := os.environ.get("ASSAY_CACHE_DIR"):
        return at_home(own).absolute()
    shared = at_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if shared.parts[:1] == ("~",):
        return Path(tempfile.gettempdir()) / f"assay-cache-{os.getuid()}"
    return shared.absolute() / "assay"


def store(path: Path, content: bytes) -> bool:
    """Write a cache file so that a reader sees the old content or the new, never a part.

    Returns:
        Whether it was written. A folder that cannot be written is no error: the work is done again next time.
    """
    # Several processes may write the same file at once.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        replace_whole(path, [content], beside, mode=0o600, durable=False)
    except OSError:
        return False
    return True


def writable_folder(name: str) -> Path:
    """Return a folder for cached files that other libraries write.

    It lies in the cache folder; where that cannot be written, it is one that goes when this process ends.
    """
    folder = cache_dir() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return _process_folder(name)
    return folder


def _process_folder(name: str) -> Path:
    folder = tempfile.TemporaryDirectory(prefix=f"assay-{name}-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return Path(folder.name)
