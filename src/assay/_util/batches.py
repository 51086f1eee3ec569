"""Going through things some at a time.

One piece of code for 32 things after another finds itself in the processor's caches; all of the code for one thing and
then for the next does not, and takes up to twice as long.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOGETHER = 32
"""Larger batches gain no more."""
_T = TypeVar("_T")


def batches(things: Iterable[_T], size: int = TOGETHER) -> Iterator[list[_T]]:
    """Lists of `size` things, the last one shorter."""
    remaining = iter(things)
    while batch := list(islice(remaining, size)):
        yield batch
