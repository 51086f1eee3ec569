"""Removes the folders of programs, whatever modes and depth they have."""

from __future__ import annotations

import contextlib
import os
import secrets


def remove_folder(place: str) -> None:
    """Remove a folder with all that is in it, as far as possible.

    Folders may be nested deeper than the longest allowed path, so each is moved to the top first.
    """
    prefix, folders = secrets.token_hex(8), [place]
    for folder in folders:  # which grows
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
            for entry in list(os.scandir(folder)):
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, 0o700)
                        moved = os.path.join(place, f"{prefix}-{len(folders)}")
                        os.rename(entry.path, moved)
                        folders.append(moved)
                    else:
                        os.unlink(entry.path)
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
