"""A task's documents, read in blocks.

Reading a data set row by row costs more than writing a prompt from the row; rows of plain values come out the same, and
ten times faster, when whole blocks of the table are turned into Python at once.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BLOCK = 256


def may_be_changed(task: Any) -> bool:
    """Whether Python that comes with `task`, an lm-eval Task, is given its documents, and so may change them."""
    given = any(callable(task.get_config(name)) for name in _GIVEN_DOCUMENTS)
    return given or type(task).__name__ != "ConfigurableTask"


def are_kept(task: Any) -> bool:
    """Whether `task` gives the same objects each time, so that what is changed in a document stays changed.

    Rows of a data set are made anew each time.
    """
    from datasets import Dataset

    docs = task.eval_docs
    return not isinstance(docs, Dataset) and next(iter(docs), None) is next(iter(task.eval_docs), None)


def documents(docs: Any) -> Iterator[Any]:
    """Yield what iterating `docs` yields: rows of a ``datasets.Dataset``, or the items of any other iterable."""
    if not _is_plain_table(docs):
        yield from docs
        return
    table = docs.with_format("arrow")
    for start in range(0, len(docs), _BLOCK):
        yield from table[start : start + _BLOCK].to_pylist()


def chosen(docs: Any, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield some of the documents, each with its number.

    Args:
        docs: a task's documents.
        numbers: of those to yield, ascending.
    """
    if not numbers:
        return
    wanted = set(numbers)
    for number, doc in enumerate(itertools.islice(documents(docs), numbers[-1] + 1)):
        if number in wanted:
            yield number, doc


def _is_plain_table(docs: Any) -> bool:
    from datasets import Dataset

    return type(docs) is Dataset and docs.format["type"] is None and all(map(_is_plain, docs.features.values()))


def _is_plain(feature: Any) -> bool:
    """Whether decoding leaves the stored value as it is: text, numbers, truth values, and lists and records of them."""
    from datasets import LargeList, List, Value

    if isinstance(feature, dict):
        return all(map(_is_plain, feature.values()))
    if isinstance(feature, List | LargeList):
        return _is_plain(feature.feature)
    return isinstance(feature, Value) and feature.dtype in _PLAIN_TYPES


_PLAIN_TYPES = frozenset(
    {"string", "large_string", "bool", "null", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
_GIVEN_DOCUMENTS = ("doc_to_text", "doc_to_target", "doc_to_choice", "process_results")
