"""SHA-256 of files, remembered from run to run while a file stays untouched."""

from __future__ import annotations

import hashlib
import os
import time

import msgspec

from assay._util.cache import cache_dir, store

_SETTLED_NS = 2_000_000_000
"""A file younger than this may change again within its time stamp's grain, so its hash is not remembered."""


class _Remembered(msgspec.Struct, frozen=True, array_like=True):
    stamp: tuple[int, int, int, int]
    """Size, modification and change time in ns, inode."""
    sha256: str


class FileHashes:
    """Hashes files; those of earlier runs are taken from the cache folder."""

    def __init__(self) -> None:
        self._path = cache_dir() / "file-hashes.msgpack"
        self._known = _read(self._path)
        self._new: dict[str, _Remembered] = {}

    def sha256(self, path: str) -> str:
        """Return the hex digest of the file's content.

        Raises:
            OSError: The file cannot be read.
        """
        path = os.path.realpath(path)
        status = os.stat(path)
        stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        known = self._known.get(path)
        if known is not None and known.stamp == stamp:
            return known.sha256
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED_NS:
            self._known[path] = self._new[path] = _Remembered(stamp, digest)
        return digest

    def store(self) -> None:
        """Remember new hashes for later runs, together with what other processes have learnt meanwhile."""
        if self._new:
            store(self._path, msgspec.msgpack.encode(_read(self._path) | self._new))


def _read(path: os.PathLike[str]) -> dict[str, _Remembered]:
    try:
        with open(path, "rb") as file:
            return msgspec.msgpack.decode(file.read(), type=dict[str, _Remembered])
    except (OSError, msgspec.MsgspecError):
        return {}


class DataFile(msgspec.Struct, frozen=True):
    """One file that a run's documents were read from."""

    path: str
    sha256: str
    size: int
    """Bytes."""
