"""Killed, crowded out, locked out, out of disk: what the journal does when its surroundings fail."""

from __future__ import annotations

import errno
import os
import queue
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from assay.errors import JournalLockedError, OutputError, StorageError
from assay.journal import Journal, check, find_journals, sync
from assay.types import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FINGERPRINT = "0123456789abcdef" * 4

PRELUDE = """
import os, sys, struct
from assay.errors import AssayError, JournalLockedError, OutputError
from assay.journal import Journal
from assay.types import Answer, Request

def request(number):
    return Request("task", number, 0, 0, "generate_until", b"{}", f"{number:032x}")

def open_journal(folder=sys.argv[1]):
    return Journal.open(folder, fingerprint="0123456789abcdef" * 4, specification={})
"""


def _request(number: int) -> Request:
    return Request("task", number, 0, 0, "generate_until", b"{}", f"{number:032x}")


def _open(folder: Path) -> Journal:
    return Journal.open(folder, fingerprint=FINGERPRINT, specification={})


def _text(number: int) -> str:
    return f"{number} " * (number * 7919 % 4000)


def _start(script: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _read_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()


@pytest.mark.slow
def test_every_append_that_returned_survives_kill_9(tmp_path: Path) -> None:
    appender = """
        journal = open_journal()
        for number in range(int(sys.argv[2]), 10**9):
            journal.append(request(number), Answer(text=f"{number} " * (number * 7919 % 4000)))
            os.write(1, struct.pack("<q", number))
    """
    rng = random.Random(20)
    confirmed: list[int] = []
    for _ in range(10):
        process = _start(appender, tmp_path, len(confirmed))
        with process:
            assert process.stdout is not None
            reports = process.stdout.read(8 * rng.randint(1, 400))
            time.sleep(rng.random() / 500)
            process.kill()
            reports += process.stdout.read()
        confirmed += [number for (number,) in struct.iter_unpack("<q", reports[: len(reports) // 8 * 8])]
        with _open(tmp_path) as journal:
            for number in confirmed:
                assert journal.lookup(_request(number).key) == Answer(text=_text(number))
            # One more may have been written whole, its report not.
            assert journal.answers - len(confirmed) <= 10
    assert confirmed == sorted(confirmed)
    assert len(find_journals(tmp_path)) == 1
    assert check(journal.path).damaged == ()


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    holder = _start("journal = open_journal(); print('open', flush=True); sys.stdin.read()", tmp_path)
    try:
        assert _read_line(holder) == "open"
        with pytest.raises(JournalLockedError, match="another process is writing"):
            _open(tmp_path)
        with Journal.open(tmp_path, fingerprint="f" * 64, specification={}) as other:
            other.append(_request(1), Answer(text="another run is not in the way"))
    finally:
        _end(holder)
    with _open(tmp_path) as journal:
        assert journal.resumed


def test_a_second_opening_in_the_same_process_is_refused_as_well(tmp_path: Path) -> None:
    with _open(tmp_path), pytest.raises(JournalLockedError):
        _open(tmp_path)
    with _open(tmp_path) as journal:
        assert journal.resumed


@pytest.mark.slow
def test_of_two_processes_that_start_a_run_at_once_one_is_refused(tmp_path: Path) -> None:
    contender = """
        print("starting", flush=True)
        try:
            journal = open_journal()
            print("won", flush=True)
        except JournalLockedError:
            print("refused", flush=True)
        sys.stdin.read()
    """
    slow = """
        from assay.journal import files
        create = files._create
        def create_when_told(*arguments):
            print("found none", flush=True)
            sys.stdin.readline()
            return create(*arguments)
        files._create = create_when_told
    """
    first = _start(textwrap.dedent(slow) + textwrap.dedent(contender), tmp_path)
    second = None
    try:
        assert [_read_line(first), _read_line(first)] == ["starting", "found none"]
        second = _start(contender, tmp_path)
        assert _read_line(second) == "starting"
        time.sleep(0.3)  # time for the second to start a journal of its own, were it not made to wait
        assert first.stdin is not None
        first.stdin.write(b"go on\n")
        first.stdin.flush()
        assert (_read_line(first), _read_line(second)) == ("won", "refused")
    finally:
        for process in filter(None, (first, second)):
            _end(process)
    assert len(find_journals(tmp_path)) == 1


def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    parent = _start(
        """
        journal = open_journal()
        child = os.fork()
        if child == 0:
            print(os.getpid(), flush=True)
            sys.stdin.read()
            os._exit(0)
        os.waitpid(child, 0)
        """,
        tmp_path,
    )
    child = int(_read_line(parent))
    try:
        parent.kill()
        parent.wait()
        os.kill(child, 0)
        with _open(tmp_path) as journal:
            assert journal.resumed
    finally:
        os.kill(child, signal.SIGKILL)
        _end(parent)


def test_a_write_cut_short_by_a_full_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    calls = []

    def full_after_ten_bytes(fd: int, content: bytes, offset: int) -> int:
        calls.append(offset)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, content[:10], offset)

    with _open(tmp_path) as journal:
        for number in range(3):
            journal.append(_request(number), Answer(text=_text(number)))
        size = journal.path.stat().st_size
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full_after_ten_bytes)
            with pytest.raises(StorageError, match="No space left on device; the 3 answers in it are safe"):
                journal.append(_request(3), Answer(text="lost"))
        assert journal.path.stat().st_size == size
        assert journal.lookup(_request(3).key) is None
        journal.append(_request(4), Answer(text="there is room again"))
    report = check(journal.path)
    assert (report.answers, report.damaged, report.torn) == (4, (), None)


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, content, offset: pwrite(fd, content[:7], offset))
    with _open(tmp_path) as journal:
        journal.append(_request(1), Answer(text="in many pieces"))
    with _open(tmp_path) as journal:
        assert journal.lookup(_request(1).key) == Answer(text="in many pieces")


def test_the_kernels_own_size_limit_ends_in_one_clear_line(tmp_path: Path) -> None:
    limited = _start(
        """
        import resource
        journal = open_journal()
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, unlimited[1]))
        number = 0
        try:
            while True:
                journal.append(request(number), Answer(text="x" * 300))
                number += 1
        except OutputError as error:
            print(number, error, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        journal.append(request(1000), Answer(text="after"))
        journal.close()
        """,
        tmp_path,
    )
    output, _ = limited.communicate(timeout=60)
    assert limited.returncode == 0
    count, message = output.decode().strip().split(" ", 1)
    assert "\n" not in message
    assert f"File too large; the {count} answers in it are safe" in message
    with _open(tmp_path) as journal:
        assert journal.answers == int(count) + 1
        assert journal.lookup(_request(1000).key) == Answer(text="after")
    assert check(journal.path).damaged == ()


def test_a_folder_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=f"cannot write to {tmp_path}/file/journal: Not a directory"):
        _open(tmp_path / "file" / "journal")


def test_a_read_only_folder_is_an_output_error(tmp_path: Path) -> None:
    visitor = _start(
        """
        import tempfile
        if os.getuid() == 0:
            os.setuid(65534)
        folder = tempfile.mkdtemp()
        os.chmod(folder, 0o555)
        for place in (folder, folder + "/deeper"):
            try:
                open_journal(place)
            except OutputError as error:
                print(error, flush=True)
        os.rmdir(folder)
        """,
        tmp_path,
    )
    output, _ = visitor.communicate(timeout=60)
    assert visitor.returncode == 0
    lines = output.decode().splitlines()
    assert len(lines) == 2
    assert all("Permission denied; make it writable or choose another folder" in line for line in lines)


def test_a_failed_sync_surfaces_at_the_next_append_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    journal = _open(tmp_path)
    monkeypatch.setattr(sync, "_sync", failing)
    with pytest.raises(OutputError, match=r"cannot make .* durable: Input/output error"):
        _append_for_half_a_minute(journal)
    with pytest.raises(StorageError, match="Input/output error"):
        journal.append(_request(2), Answer(text="y"))
    with pytest.raises(StorageError, match="Input/output error"):
        journal.close()
    monkeypatch.undo()
    with _open(tmp_path) as again:
        assert again.answers == 2


def _append_for_half_a_minute(journal: Journal) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        journal.append(_request(1), Answer(text="x"))
        time.sleep(0.01)


def test_a_failed_last_sync_surfaces_at_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    journal = _open(tmp_path)
    monkeypatch.setattr(sync, "_sync", failing)
    with pytest.raises(StorageError, match="Input/output error"):
        journal.close()


def test_everything_is_synced_at_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced_sizes = []
    monkeypatch.setattr(sync, "_sync", lambda fd: synced_sizes.append(os.fstat(fd).st_size))
    with _open(tmp_path) as journal:
        for number in range(100):
            journal.append(_request(number), Answer(text="x"))
    assert synced_sizes[-1] == journal.path.stat().st_size


def test_many_writes_within_an_interval_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr(sync, "_sync", syncs.put)
    with (tmp_path / "file").open("wb") as file:
        commit = sync.GroupCommit(file.fileno(), interval=3600)
        commit.request()
        syncs.get(timeout=30)
        for _ in range(20):
            commit.request()
            time.sleep(0.005)
        assert syncs.empty()
        commit.stop()
    assert syncs.qsize() == 1


def _delete(journal: Journal) -> None:
    journal.path.unlink()


def _remove_folder(journal: Journal) -> None:
    shutil.rmtree(journal.path.parents[1])


def _move_folder(journal: Journal) -> None:
    outputs = journal.path.parents[1]
    outputs.rename(outputs.with_name("elsewhere"))


def _replace(journal: Journal) -> None:
    journal.path.unlink()
    journal.path.write_text("somebody else's")


@pytest.mark.parametrize("harm", [_delete, _remove_folder, _move_folder, _replace])
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_journal_that_is_gone_from_its_place_is_made_again_with_every_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Journal], None], *, goes_on: bool
) -> None:
    place = tmp_path / "out" / "journal"
    with _open(place) as journal:
        for number in range(50):
            journal.append(_request(number), Answer(text=_text(number)))
        harm(journal)
        if goes_on:
            for number in range(50, 60):
                journal.append(_request(number), Answer(text=_text(number)))
        journal.finalise("2026-01-31T09-15-00.123456")
        assert journal.path.exists()
        assert journal.lookup(_request(3).key) == Answer(text=_text(3))
        with pytest.raises(JournalLockedError):
            _open(place)
    assert caplog.text.count(f"it is made again, with its {60 if goes_on else 50} answers") == 1
    with _open(place) as again:
        assert (again.path, again.answers) == (journal.path, 60 if goes_on else 50)
    assert check(journal.path).damaged == ()
    assert [path.read_text() for path in place.glob("*.replaced-*")] == (["somebody else's"] * (harm is _replace))


def test_a_journal_that_is_deleted_before_a_run_is_stopped_is_made_again(tmp_path: Path) -> None:
    with _open(tmp_path / "out") as journal:
        journal.append(_request(1), Answer(text="x"))
        shutil.rmtree(tmp_path / "out")
    with _open(tmp_path / "out") as again:
        assert again.answers == 1


def test_a_deleted_journal_is_noticed_within_a_second(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with _open(tmp_path) as journal:
        journal.path.unlink()
        deadline = time.monotonic() + 30
        while "made again" not in caplog.text and time.monotonic() < deadline:
            journal.append(_request(1), Answer(text="x"))
            time.sleep(0.01)
        assert journal.path.exists()


@pytest.mark.parametrize(
    "in_its_place", [lambda out: out.touch(), lambda out: out.symlink_to(out)], ids=["file", "link to itself"]
)
def test_where_a_journal_cannot_be_made_again_its_answers_are_kept_elsewhere_and_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_its_place: Callable[[Path], None]
) -> None:
    (tmp_path / "spare").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))
    journal = _open(tmp_path / "out")
    journal.append(_request(1), Answer(text="x"))
    shutil.rmtree(tmp_path / "out")
    in_its_place(tmp_path / "out")
    with pytest.raises(
        StorageError, match=r"cannot be made again \(.*\): its 1 answers are kept in (.*); move"
    ) as told:
        journal.close()
    (kept,) = (tmp_path / "spare").glob("*/*.journal")
    assert str(kept) in str(told.value)
    (tmp_path / "out").unlink()
    (tmp_path / "out").mkdir()
    shutil.move(kept, tmp_path / "out")
    with _open(tmp_path / "out") as again:
        assert again.answers == 1


@pytest.mark.parametrize("size", [0, 5, 14, 2000])
def test_a_journal_that_another_program_cuts_goes_on_at_its_new_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    with _open(tmp_path) as journal:
        for number in range(50):
            journal.append(_request(number), Answer(text="x" * 100))
        os.truncate(journal.path, size)
        for number in range(50, 60):
            journal.append(_request(number), Answer(text=_text(number)))
        assert f"was cut to {size} bytes by another program" in caplog.text
        kept = [number for number in range(60) if journal.lookup(_request(number).key) is not None]
        assert kept[-10:] == list(range(50, 60))
        assert f"{60 - len(kept)} answers are lost to a resumption" in caplog.text
    assert b"\0" not in journal.path.read_bytes()
    with _open(tmp_path) as again:
        assert again.answers == len(kept)
