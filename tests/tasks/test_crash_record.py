"""What a run remembers of samples at which its process died."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from assay.tasks.crash_record import CrashRecord


def test_only_deaths_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "run.scoring"
    path.write_text("'a b' 7\n")

    def stopped() -> None:
        crashes = CrashRecord(path)
        with crashes.open():
            with crashes.scoring("task with a long name", 1):
                assert path.read_text() == "'a b' 7\n'task with a long name' 1\n"
            with crashes.scoring("a\nb", 2):
                assert path.read_text().rstrip(" ") == "'a b' 7\n'a\\nb' 2\n"
                raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            stopped()
    assert path.read_text() == "'a b' 7\n"
    assert CrashRecord(path).refusal("a b", 7) is None


def test_a_run_that_is_stopped_in_good_order_suspects_no_program(tmp_path: Path) -> None:
    path = tmp_path / "run.scoring"

    async def stopped() -> None:
        crashes = CrashRecord(path)
        with crashes.open():
            async with crashes.running_programs("task", 1):
                assert path.read_text() == "'task' 1\n"
                raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(stopped())
    assert not path.exists()


def test_whatever_is_under_way_when_the_process_dies_is_suspected(tmp_path: Path) -> None:
    path = tmp_path / "run.scoring"

    for _ in range(2):
        crashes = CrashRecord(path)
        with crashes.scoring("task", 1), crashes.scoring("task", 2):
            with crashes.scoring("other", 3):
                pass
            with crashes.scoring("other", 4):
                at_death = path.read_bytes()
        path.write_bytes(at_death)
    refused = [("task", 1), ("task", 2), ("other", 4)]
    crashes = CrashRecord(path)
    assert [place for place in [*refused, ("other", 3)] if crashes.refusal(*place)] == refused
    assert not CrashRecord(path, forget=True).refusal("task", 1)


def test_a_suspected_program_runs_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.scoring"
    path.write_text("'task' 2\n'task' 1\n")

    async def together() -> list[int]:
        crashes, running, seen = CrashRecord(path), [], []

        async def one(doc_id: int) -> None:
            async with crashes.running_programs("task", doc_id):
                running.append(doc_id)
                await asyncio.sleep(0.01)
                if doc_id in (1, 2):
                    seen.append(len(running))
                running.remove(doc_id)

        await asyncio.gather(*(one(doc_id) for doc_id in (5, 1, 6, 2, 7)))
        return seen

    assert asyncio.run(together()) == [1, 1]


@pytest.mark.parametrize("damaged", [b'{"x":' + b"[" * 100_000, b"'task' \xff\n", b"", b"\0" * 5000])
def test_a_damaged_file_suspects_nobody(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "run.scoring"
    path.write_bytes(damaged)
    assert CrashRecord(path).refusal("task", 1) is None


def test_without_a_place_to_write_nothing_is_remembered(tmp_path: Path) -> None:
    crashes = CrashRecord(tmp_path / "gone" / "run.scoring")
    with crashes.open(), crashes.scoring("task", 1):
        pass
    assert crashes.refusal("task", 1) is None
