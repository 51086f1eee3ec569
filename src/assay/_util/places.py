"""File offsets of each document's entries."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


class PlacesByDocument:
    """Offsets by document, added in any order. Memory: sixteen bytes an entry."""

    def __init__(self) -> None:
        self._documents = array("q")
        self._offsets = array("q")
        self._is_sorted = True

    def add(self, doc_id: int, offset: int) -> None:
        """Add an entry.

        Raises:
            OverflowError: the document's number takes more than 64 bits.
        """
        if self._documents and doc_id < self._documents[-1]:
            self._is_sorted = False
        self._documents.append(doc_id)
        self._offsets.append(offset)

    def of(self, doc_id: int) -> Sequence[int]:
        """The offsets of a document's entries, in the order in which they were added."""
        self._sort()
        first, end = bisect_left(self._documents, doc_id), bisect_right(self._documents, doc_id)
        return self._offsets[first:end]

    def __contains__(self, doc_id: int) -> bool:
        return len(self.of(doc_id)) > 0

    def documents(self) -> list[int]:
        """All documents that have entries, in ascending order."""
        self._sort()
        return list(dict.fromkeys(self._documents))

    def _sort(self) -> None:
        if not self._is_sorted:
            order = np.argsort(np.frombuffer(self._documents, np.int64), kind="stable")
            for values in (self._documents, self._offsets):
                values[:] = array("q", np.frombuffer(values, np.int64)[order].tobytes())
            self._is_sorted = True
