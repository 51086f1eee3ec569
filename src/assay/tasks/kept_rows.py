"""Remembers from run to run which files hold the rows of a folder's data set, until something in the folder changes.

The datasets library works that out each time: it reads the folder's description, matches the names of its files, and
hashes their content, which takes longer than importing the library.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.cache import cache_dir, store
from assay.tasks.data_errors import missing_split
from assay.tasks.file_hashes import DataFile, is_settled, stamp_of
from assay.tasks.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from assay.tasks.file_hashes import Stamp

_FORMAT = 1
"""Version of the stored format; with another number nothing stored before is used."""


class KeptRows(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rows of one data set are, as the datasets library stores them."""

    splits: dict[str, tuple[str, ...]]
    """Arrow files by split."""
    counts: dict[str, int]
    """Rows by split."""
    sources: tuple[DataFile, ...]
    """The files that the rows were read from."""

    @classmethod
    def of(cls, splits: Mapping[str, Any], sources: tuple[DataFile, ...]) -> KeptRows:
        """Describe splits that the datasets library has loaded."""
        return cls(
            splits={str(split): tuple(each["filename"] for each in rows.cache_files) for split, rows in splits.items()},
            counts={str(split): len(rows) for split, rows in splits.items()},
            sources=sources,
        )

    def open(self, library: Callable[[], Mapping[str, Any]]) -> dict[str, Rows] | None:
        """The rows by split; None where the files are gone or damaged.

        Args:
            library: loads all splits with the datasets library.
        """
        import pyarrow

        try:
            return {split: self._rows(split, library) for split in self.splits}
        except (OSError, ValueError, pyarrow.ArrowException):
            return None

    def _rows(self, split: str, library: Callable[[], Mapping[str, Any]]) -> Rows:
        import pyarrow

        tables = [pyarrow.ipc.open_stream(pyarrow.memory_map(file)).read_all() for file in self.splits[split]]
        table = pyarrow.concat_tables(tables)
        if table.num_rows != self.counts[split]:
            raise ValueError(split)
        return Rows(table, lambda: library()[split])


class KeptSplits(dict[str, Rows]):
    """A data set's splits; a missing one raises a readable error."""

    def __init__(self, splits: Mapping[str, Rows], label: str) -> None:
        super().__init__(splits)
        self._label = label

    def __missing__(self, split: str) -> Rows:
        raise missing_split(self._label, split, self)


def stored_rows(folder: Path, name: str | None, options: Mapping[str, Any]) -> KeptRows | None:
    """What :func:`store_rows` stored for a folder; None if something in it has changed since.

    Args:
        folder: the data set's.
        name: its configuration.
        options: the other arguments that choose rows.
    """
    if (key := _key(folder, name, options)) is None:
        return None
    try:
        return _decoder.decode(_file(key).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def store_rows(folder: Path, name: str | None, options: Mapping[str, Any], kept: KeptRows) -> None:
    """Store where the rows are, for later runs; see :func:`stored_rows`."""
    if (key := _key(folder, name, options)) is not None:
        store(_file(key), msgspec.json.encode(kept))


_decoder = msgspec.json.Decoder(KeptRows)


def _file(key: str) -> Path:
    return cache_dir() / "rows" / f"{key}.json"


def _key(folder: Path, name: str | None, options: Mapping[str, Any]) -> str | None:
    """A hash of everything that the rows depend on; None where a change could go unseen."""
    try:
        stamps = sorted(_stamps(folder))
    except (OSError, ValueError):
        return None
    parts = [_FORMAT, _libraries(), str(folder), name, repr(sorted(options.items())), stamps]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogateescape")).hexdigest()


@functools.cache
def _libraries() -> tuple[str, str]:
    return version("datasets"), version("pyarrow")


def _stamps(folder: Path) -> Iterator[tuple[str, Stamp]]:
    """Each file's stamp.

    Raises:
        ValueError: a folder is a link, or a file may change within the resolution of its stamp.
    """
    for place, folders, files in os.walk(folder):
        if any(os.path.islink(os.path.join(place, name)) for name in folders):
            raise ValueError(place)
        for name in files:
            path = os.path.join(place, name)
            stamp = stamp_of(os.stat(path))
            if not is_settled(stamp):
                raise ValueError(path)
            yield path, stamp
