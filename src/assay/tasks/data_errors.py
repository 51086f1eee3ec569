"""Turns the errors of the datasets library into messages of one line."""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

from assay._util.storage import write_error
from assay.errors import DataNotFoundError, FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from assay.tasks.file_hashes import DataFile


@contextlib.contextmanager
def finding(label: str, where: str, looked_in: Sequence[Path] = ()) -> Iterator[None]:
    """Turn what the datasets library raises where something is missing into one line for the user."""
    try:
        yield
    except Exception as error:
        before = f"; not in {' or '.join(map(str, looked_in))} either" if looked_in else ""
        raise DataNotFoundError(f"data set {label} cannot be found {where}: {first_line(error)}{before}") from None


@contextlib.contextmanager
def reading(label: str, files: Sequence[DataFile]) -> Iterator[None]:
    """Turn what the datasets library raises on damaged files or a full disk into one line for the user."""
    from datasets.exceptions import DatasetGenerationError

    try:
        yield
    except (DatasetGenerationError, OSError, ValueError) as error:
        cause = error.__cause__ or error
        if isinstance(cause, OSError) and cause.errno is not None:
            raise write_error(f"data set {label} cannot be kept in the cache folder", cause) from None
        names = ", ".join(file.path for file in files)
        raise FileFormatError(f"data set {label} cannot be read from {names}: {first_line(cause)}") from None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def split_dict(splits: Mapping[str, Any], label: str) -> Any:
    """Return a new ``DatasetDict`` over shared rows; a missing split raises a readable error."""
    import datasets

    class Splits(datasets.DatasetDict):  # type: ignore[misc]
        def __missing__(self, split: str) -> Any:
            raise missing_split(label, split, self)

    return Splits({split: copy.copy(rows) for split, rows in splits.items()})


def missing_split(label: str, split: str, splits: Iterable[str]) -> DataNotFoundError:
    """The error for a split that a data set lacks; it has `splits`."""
    return DataNotFoundError(
        f"data set {label} has no split {str(split)!r} (it has: {', '.join(map(str, splits))}); "
        "a task file that includes the task's can name another, or null for none"
    )
