"""The cache folder: one for each user, safe to delete at any time."""

from __future__ import annotations

import atexit
import os
import secrets
import tempfile
from pathlib import Path

from assay._util.paths import expand_home
from assay._util.storage import replace_whole


def cache_dir() -> Path:
    """The folder for cached files; it may not exist yet.

    It is ``$ASSAY_CACHE_DIR``, else ``$XDG_CACHE_HOME/assay``, else ``~/.cache/assay``. A user without a home folder
    gets one in the system's folder for temporary files.
    """
    if own := os.environ.get("ASSAY_CACHE_DIR"):
        return expand_home(own).absolute()
    shared = expand_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if shared.parts[:1] == ("~",):
        return Path(tempfile.gettempdir()) / f"assay-cache-{os.getuid()}"
    return shared.absolute() / "assay"


def store(path: Path, content: bytes) -> bool:
    """Replace a cache file in one step, so that readers see the old content or the new.

    Returns:
        Whether it was written. A folder that is not writable is no error: the content is computed again next time.
    """
    # Several processes may write the same file at once.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        replace_whole(path, [content], beside, mode=0o600, durable=False)
    except OSError:
        return False
    return True


def writable_folder(name: str) -> Path:
    """A folder in which other libraries can cache files.

    It lies in the cache folder. If that is not writable, it is a temporary folder, removed when this process ends.
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
