"""SHA-256 of files, remembered from run to run while a file stays untouched."""

from __future__ import annotations

import hashlib
import os
import time

import msgspec

from assay._util.cache import cache_dir, store

_SETTLED_NS = 2_000_000_000
"""A file younger than this may change again within the resolution of its time stamp, so its hash is not kept."""


Stamp = tuple[int, int, int, int]
"""A file's size, modification and change time in ns, and inode: what changes when the file does."""


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def is_settled(stamp: Stamp) -> bool:
    """Whether the stamp is so old that it will change when the file does."""
    return time.time_ns() - max(stamp[1:3]) > _SETTLED_NS


class _Remembered(msgspec.Struct, frozen=True, array_like=True):
    stamp: Stamp
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
        stamp = stamp_of(os.stat(path))
        known = self._known.get(path)
        if known is not None and known.stamp == stamp:
            return known.sha256
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if is_settled(stamp):
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
