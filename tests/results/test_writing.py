"""Results files are whole or absent, and read back with a clear word about what is wrong."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from assay.errors import FileFormatError, OutputError, SpecificationError, StorageError, TaskConfigError
from assay.evaluation.totals import RunTotals
from assay.results.document import ResultsDocument
from assay.results.reading import read_results
from assay.results.writing import model_folder, new_date_id, refuse_unwritable, write_results
from assay.types import Answer, Failure, FailureCause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.scoring.task_scores import TaskScores


DOCUMENT = ResultsDocument(results={"t": {"acc,none": 0.5, "text": "ü \ud800"}}, model_name="m")


def test_folders_are_named_as_lm_eval_names_them() -> None:
    assert model_folder("results", "org/model:v1") == Path("results/org__model__v1")


def test_times_are_written_as_lm_eval_writes_them(tmp_path: Path) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}", new_date_id(tmp_path))


def test_a_new_run_is_the_newest_also_where_the_clock_has_been_set_back(tmp_path: Path) -> None:
    (tmp_path / "results_2999-12-31T23-59-59.999999.json").touch()
    (tmp_path / "results_0999-01-01T00-00-00.000000.json").touch()
    assert new_date_id(tmp_path) == "3000-01-01T00-00-00.000000"
    (tmp_path / "results_9999-12-31T23-59-59.999999.json").touch()
    assert new_date_id(tmp_path) < "2999"
    (tmp_path / "results_final.json").touch()
    assert new_date_id(tmp_path) < "2999"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write_results(tmp_path, "now", DOCUMENT, {})
    assert path == tmp_path / "results_now.json"
    assert read_results(path) == DOCUMENT
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        OutputError, match=r"cannot write .*; the run's answers are kept in its journal; make it writable"
    ):
        write_results(tmp_path / "file", "now", DOCUMENT, {})


def test_a_folder_that_is_gone_is_made_again(tmp_path: Path) -> None:
    assert read_results(write_results(tmp_path / "removed" / "model", "now", DOCUMENT, {})) == DOCUMENT


def test_a_full_disk_is_no_wrong_usage_and_keeps_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="answers are kept in its journal; make room, then run the same") as told:
        write_results(tmp_path, "now", DOCUMENT, {})
    assert told.value.exit_code == 74
    assert list(tmp_path.iterdir()) == []


class FullScores:
    """Whose samples cannot be kept until they are written."""

    def sample_lines(self) -> Iterator[bytes]:
        yield b"{}\n"
        raise StorageError("cannot write scored samples")


def test_no_part_of_a_samples_file_stays_behind(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="scored samples"):
        write_results(tmp_path, "now", DOCUMENT, {"t": cast("TaskScores", FullScores())})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["..", ".", "", "x\0", "n" * 300, "\ud800"])
def test_a_model_after_which_no_folder_can_be_named_is_refused(name: str) -> None:
    with pytest.raises(SpecificationError, match="no folder can be named after the model"):
        model_folder("out", name)


@pytest.mark.parametrize("name", ["a/b", "../../evil", "x\0", "n" * 240])
def test_a_task_whose_name_is_no_file_name_is_refused(name: str) -> None:
    refuse_unwritable(["fine", "also fine: ü"])
    with pytest.raises(TaskConfigError, match="cannot have a samples file"):
        refuse_unwritable(["fine", name])


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"results": []}', b"\xff\xfe", b'{"samples": {}}', b"[" * 100_000]
)
def test_what_is_no_results_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "results_x.json"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"results_x\.json"):
        read_results(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no results file"):
        read_results(tmp_path / "results_y.json")


def test_totals_add_up() -> None:
    totals = RunTotals()
    totals.add([Answer(text="a", prompt_tokens=10, completion_tokens=3, latency=0.5, attempts=2), Answer(text="b")])
    totals.add([Failure(cause=FailureCause.RESET, message="", attempts=8)])
    summary = totals.summary(1.5)
    assert msgspec.to_builtins(summary) == {
        "answers": 2,
        "failures": {"reset": 1},
        "attempts": 11,
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "answers_without_usage": 1,
        "latency_seconds": {"p50": 0.5, "p90": 0.5, "p99": 0.5},
        "seconds": 1.5,
    }


def test_totals_of_nothing() -> None:
    assert RunTotals().summary(0.0).latency_seconds == {"p50": None, "p90": None, "p99": None}
