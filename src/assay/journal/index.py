"""An index from request keys to file offsets. Memory: sixteen bytes a key."""

from __future__ import annotations

import numpy as np

_MIN_MERGE = 2**16
_hash = hash
"""Differs from process to process, so the index lives in memory only."""


class OffsetIndex:
    """Maps keys to file offsets; the last offset put for a key wins.

    A key is stored as a 64-bit hash. Two keys with the same hash (a chance of 1 in 10^7 among a million keys) share an
    entry, so callers must compare the key in the record at the offset.
    """

    def __init__(self) -> None:
        self._hashes = np.empty(0, dtype=np.int64)
        """Sorted."""
        self._offsets = np.empty(0, dtype=np.int64)
        self._recent: dict[int, int] = {}
        """Not merged into the arrays yet."""
        self._most_unmerged = _MIN_MERGE

    def __len__(self) -> int:
        self._merge()
        return len(self._hashes)

    def put(self, key: str, offset: int) -> None:
        """Remember that the newest answer to ``key`` lies at ``offset``. Amortised constant time."""
        self._recent[_hash(key)] = offset
        if len(self._recent) > self._most_unmerged:
            self._merge()

    def get(self, key: str) -> int | None:
        """The offset of the newest answer to ``key``, or to a key of the same hash; None if there is none."""
        hashed = _hash(key)
        if hashed in self._recent:
            return self._recent[hashed]
        if not len(self._hashes):
            return None
        place = int(np.searchsorted(self._hashes, np.int64(hashed)))
        if place == len(self._hashes) or int(self._hashes[place]) != hashed:
            return None
        return int(self._offsets[place])

    def _merge(self) -> None:
        if not self._recent:
            return
        count = len(self._recent)
        hashes = np.concatenate([self._hashes, np.fromiter(self._recent.keys(), np.int64, count)])
        offsets = np.concatenate([self._offsets, np.fromiter(self._recent.values(), np.int64, count)])
        order = np.argsort(hashes, kind="stable")
        hashes, offsets = hashes[order], offsets[order]
        last_of_its_hash = np.append(hashes[1:] != hashes[:-1], True)
        self._hashes, self._offsets = hashes[last_of_its_hash], offsets[last_of_its_hash]
        self._recent.clear()
        self._most_unmerged = max(_MIN_MERGE, len(self._hashes) // 8)
