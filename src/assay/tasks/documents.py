"""A task's documents, read in blocks.

Reading a data set row by row costs more than writing a prompt from the row; rows of plain values come out the same, and
ten times faster, when whole blocks of the table are turned into Python at once.
"""

from __future__ import annotations

import itertools
import sys
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from assay.tasks.rows import is_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.tasks.protocol import Task

_BLOCK = 256


def may_be_changed(task: Task) -> bool:
    """Whether Python that comes with `task`, an lm-eval Task, is given its documents, and so may change them."""
    given = any(callable(task.get_config(name)) for name in _GIVEN_DOCUMENTS)
    return given or type(task).__name__ != "ConfigurableTask"


def are_same_objects(task: Task) -> bool:
    """Whether `task` gives the same objects each time, so that what is changed in a document stays changed.

    Rows of a data set are made anew each time.
    """
    docs = task.eval_docs
    return not is_table(docs) and next(iter(docs), None) is next(iter(task.eval_docs), None)


def copied(doc: Any) -> Any:
    """A deep copy of a document; quicker than ``deepcopy`` for texts, numbers and lists of them."""
    if type(doc) is not dict:
        return deepcopy(doc)
    return {key: value if type(value) in _UNCHANGEABLE else _copied_list(value) for key, value in doc.items()}


def _copied_list(value: Any) -> Any:
    is_flat = type(value) is list and _UNCHANGEABLE.issuperset(map(type, value))
    return value.copy() if is_flat else deepcopy(value)


_UNCHANGEABLE = frozenset({str, int, float, bool, type(None)})


def documents(docs: Any) -> Iterator[Any]:
    """Yield what iterating `docs` yields: rows of a table, or the items of any other iterable."""
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
    library = sys.modules.get("datasets.arrow_dataset")
    is_table = library is not None and type(docs) is library.Dataset
    return is_table and docs.format["type"] is None and all(map(is_plain, docs.features.values()))


def is_plain(feature: Any) -> bool:
    """Whether decoding leaves the stored value as it is: text, numbers, truth values, and lists and records of them.

    Args:
        feature: the datasets library's description of a column.
    """
    from datasets import ClassLabel, LargeList, List, Value

    if isinstance(feature, dict):
        return all(map(is_plain, feature.values()))
    if isinstance(feature, List | LargeList):
        return is_plain(feature.feature)
    return isinstance(feature, ClassLabel) or (isinstance(feature, Value) and feature.dtype in _PLAIN_TYPES)


_PLAIN_TYPES = frozenset(
    {"string", "large_string", "bool", "null", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
_GIVEN_DOCUMENTS = ("doc_to_text", "doc_to_target", "doc_to_choice", "process_results")
