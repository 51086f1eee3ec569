"""A split's rows read from the files in which the datasets library keeps them, without the library.

To import it takes half a second and 80 MB, and most tasks only go through their rows.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from itertools import compress, pairwise, repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow

_BLOCK = 256
"""Rows that are turned into Python together: ten times faster than one by one."""


class Rows:
    """Rows of plain values, as a ``datasets.Dataset`` gives them; everything else is left to such a data set.

    Args:
        table: all rows of the split.
        library: loads the split with the datasets library.
        numbers: which of the table's rows these are, ascending; None: all.
    """

    def __init__(self, table: pyarrow.Table, library: Callable[[], Any], numbers: Sequence[int] | None = None) -> None:
        self._table = table
        self._library = library
        self._numbers = range(table.num_rows) if numbers is None else numbers

    @property
    def column_names(self) -> list[str]:
        """The columns, in order."""
        return list(self._table.column_names)

    @property
    def features(self) -> Mapping[str, Any]:
        """The library's description of each column."""
        return _Features(self.column_names, self._as_dataset)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, key: Any) -> Any:
        if not hasattr(key, "__index__"):
            return self._as_dataset()[key]
        (row,) = self._read([self._numbers[operator.index(key)]])
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self._numbers), _BLOCK):
            yield from self._read(self._numbers[start : start + _BLOCK])

    def filter(self, function: Any = None, *args: Any, **options: Any) -> Any:
        """The rows for which `function` is true."""
        if args or options or function is None:
            return self._as_dataset().filter(function, *args, **options)
        columns = _Columns(self._table)
        try:
            numbers = [*compress(self._numbers, map(function, map(_Row, repeat(columns), self._numbers)))]
        except Exception:  # it may need more of a row than this one offers; else the same is raised again
            return self._as_dataset().filter(function)
        return Rows(self._table, self._library, numbers)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._as_dataset(), name)

    def _as_dataset(self) -> Any:
        whole = self._library()
        return whole if len(self._numbers) == self._table.num_rows else whole.select(self._numbers)

    def _read(self, numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        for start, count in _runs(numbers):
            yield from self._table.slice(start, count).to_pylist()


def is_table(docs: Any) -> bool:
    """Whether documents are rows of a table, these or a ``datasets.Dataset``'s."""
    library = sys.modules.get("datasets.arrow_dataset")
    return isinstance(docs, Rows) or (library is not None and isinstance(docs, library.Dataset))


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where runs of neighbours begin, and how long they are."""
    breaks = [place for place, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1]
    for first, end in pairwise([0, *breaks, len(numbers)]):
        yield numbers[first], end - first


class _Features(Mapping[str, Any]):
    """Knows the columns' names; for their descriptions it asks the library."""

    def __init__(self, names: list[str], library: Callable[[], Any]) -> None:
        self._names = names
        self._library = library

    def __getitem__(self, name: str) -> Any:
        return self._library().features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Columns(dict[str, list[Any]]):
    """A table's columns, each turned into Python when it is first looked at."""

    def __init__(self, table: pyarrow.Table) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, name: str) -> list[Any]:
        self[name] = self._table.column(name).to_pylist()
        return self[name]


class _Row(Mapping[str, Any]):
    """A row of which only the values that are looked at are turned into Python."""

    __slots__ = ("_columns", "_number")

    def __init__(self, columns: _Columns, number: int) -> None:
        self._columns = columns
        self._number = number

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns._table.column_names)

    def __len__(self) -> int:
        return int(self._columns._table.num_columns)
