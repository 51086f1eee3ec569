"""Files are whole or as they were."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay._util.cache import store
from assay._util.storage import write_whole
from assay.errors import OutputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_file_and_its_folder_are_written(tmp_path: Path) -> None:
    file = tmp_path / "new" / "x.json"
    assert write_whole(file, [b"a", b"b"]) == file
    assert file.read_bytes() == b"ab"
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_cannot_be_finished_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.json"
    write_whole(file, b"old")

    def parts() -> Iterator[bytes]:
        yield b"new"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match=r"cannot write the report: .*; make room, then run"):
        write_whole(file, parts(), failure="cannot write the report")

    def full(_: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"cannot write .*x\.json: Read-only file system; all is kept; make it"):
        write_whole(file, b"new", kept="all is kept")
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(file, b"old")]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    assert store(tmp_path / "cache" / "x", b"1")
    assert (tmp_path / "cache" / "x").read_bytes() == b"1"
    assert not store(tmp_path / "cache" / "x" / "y", b"2")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["x"]
