"""Files are whole or as they were."""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay._util.cache import store
from assay._util.storage import write_new, write_whole
from assay.errors import OutputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_file_and_its_folder_are_written(tmp_path: Path) -> None:
    file = tmp_path / "new" / "x.json"
    assert write_whole(file, [b"a", b"b"]) == file
    assert file.read_bytes() == b"ab"
    assert list(file.parent.iterdir()) == [file]


def test_new_files_replace_none_and_none_is_written_if_one_exists(tmp_path: Path) -> None:
    write_new({tmp_path / "new" / "a": "first"}, instead="move it")
    with pytest.raises(OutputError, match="a is there already; move it"):
        write_new({tmp_path / "b": "second", tmp_path / "new" / "a": "second"}, instead="move it")
    assert (tmp_path / "new" / "a").read_text() == "first"
    assert not (tmp_path / "b").exists()


def test_a_new_file_that_cannot_be_finished_is_removed(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_new({tmp_path / "a": "\ud800"}, instead="")
    assert not (tmp_path / "a").exists()


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


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "x.json")
    for content in (b"old", b"new"):
        write_whole(tmp_path / "link", content)
        assert (tmp_path / "there" / "x.json").read_bytes() == content
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "there", "x.json"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, [b"a", b"b"])
        assert os.read(reading, 10) == b"ab"
    finally:
        os.close(reading)
    assert pipe.is_fifo()


def test_what_stands_for_an_open_file_is_written_to(tmp_path: Path) -> None:
    with (tmp_path / "open").open("wb") as opened:
        before = os.stat(opened.fileno())
        write_whole(Path(f"/dev/fd/{opened.fileno()}"), b"x")
    assert (tmp_path / "open").read_bytes() == b"x"
    assert os.path.samestat(before, (tmp_path / "open").stat())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_stays(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    file.write_bytes(b"old")
    file.chmod(0o444)
    with pytest.raises(OutputError, match="Permission denied"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"


def test_of_several_that_write_the_same_file_each_writes_it_whole(tmp_path: Path) -> None:
    file, second_begins = tmp_path / "x.json", threading.Event()

    def slow() -> Iterator[bytes]:
        yield b"1" * 10
        assert second_begins.wait(60)
        time.sleep(0.1)  # in which the second one would write, too
        yield b"1" * 10

    def second() -> Path:
        second_begins.set()
        return write_whole(file, [b"2" * 10, b"2" * 20])

    with ThreadPoolExecutor() as threads:
        writing = [threads.submit(write_whole, file, slow())]
        while not (tmp_path / ".x.json.partial").exists():
            time.sleep(0.001)
        writing.append(threads.submit(second))
        for one in writing:
            one.result()
    assert file.read_bytes() == b"2" * 30
    assert list(tmp_path.iterdir()) == [file]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    assert store(tmp_path / "cache" / "x", b"1")
    assert (tmp_path / "cache" / "x").read_bytes() == b"1"
    assert not store(tmp_path / "cache" / "x" / "y", b"2")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["x"]
