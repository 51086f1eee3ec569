"""The report is the same whether its samples went by while triage read them, or are read for it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from assay.diagnosis import explain_scores
from assay.reports.html import write_report
from assay.reports.page_gathering import Gathering
from assay.runs.samples import RunSamples
from tests.result_files import write_run


def run_of_two_tasks(folder: Path) -> Path:
    return write_run(folder, {"one": [1.0, 0.0, 0.0], "two": [0.0, 1.0]})


def test_what_triage_has_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = run_of_two_tasks(tmp_path)
    alone = write_report(file, output=tmp_path / "alone.html").read_bytes()
    gathering = Gathering()
    assert explain_scores(file, (), gathering.read) == explain_scores(file, ())
    monkeypatch.delattr(RunSamples, "sample")
    assert write_report(file, output=tmp_path / "gathered.html", gathered=gathering).read_bytes() == alone


def test_a_walk_that_was_broken_off_counts_for_nothing(tmp_path: Path) -> None:
    file = run_of_two_tasks(tmp_path)
    gathering = Gathering()
    with RunSamples(file) as samples:
        assert len(list(islice(gathering.read(samples), 2))) == 2
    assert gathering.of(file) is None
    alone = write_report(file, output=tmp_path / "alone.html").read_bytes()
    assert write_report(file, output=tmp_path / "gathered.html", gathered=gathering).read_bytes() == alone


def test_another_run_s_samples_are_not_taken_for_its_own(tmp_path: Path) -> None:
    file, other = run_of_two_tasks(tmp_path / "a"), run_of_two_tasks(tmp_path / "b")
    gathering = Gathering()
    explain_scores(other, (), gathering.read)
    assert gathering.of(other) is not None
    assert gathering.of(file) is None
