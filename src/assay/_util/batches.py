"""Splits an iterable into batches.

Running one step for 32 items before the next step keeps that step's code in the processor's caches. Running all steps
for one item after the other takes up to twice as long.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BATCH_SIZE = 32
"""Larger batches are no faster."""
_T = TypeVar("_T")


def batches(items: Iterable[_T], size: int = BATCH_SIZE) -> Iterator[list[_T]]:
    """Lists of `size` items; the last one may be shorter."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
