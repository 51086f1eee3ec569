"""The page of all runs in a folder."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.cli.report import report as report_command
from assay.errors import FileFormatError
from assay.reports.html import report_file
from assay.reports.index_page import write_index
from tests.result_files import write_run


def _folder(place: Path) -> Path:
    write_run(place / "a model", {"first": [1.0, 0.0]}, stamp="2026-01-01T00-00-00.000001")
    write_run(place / "b", {"first": [1.0] * 4, "second": [0.0] * 4}, stamp="2026-01-02T00-00-00.000001")
    return place


def test_a_folder_of_several_runs_has_an_index_newest_first_each_linked_to_its_report(tmp_path: Path) -> None:
    _folder(tmp_path)
    done = CliRunner().invoke(report_command, [str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text()
    links = [html.unescape(link) for link in re.findall(r'<a href="([^"]*)"', page)]
    assert links == ["b/report_2026-01-02T00-00-00.000001.html"] * 2 + [
        "a%20model/report_2026-01-01T00-00-00.000001.html"
    ]
    assert (tmp_path / "a model" / "report_2026-01-01T00-00-00.000001.html").exists()
    assert re.findall(r'<td class="n strong">(.*?)</td>', page) == ["1.0000", "0.0000", "0.5000"]
    assert re.findall(r'<td class="n interval">(.*?) – (.*?)\s*</td>', page)[2] == ("0.0945", "0.9055")


def test_one_run_of_several_is_named_by_its_place(tmp_path: Path) -> None:
    _folder(tmp_path)
    done = CliRunner().invoke(report_command, [str(tmp_path / "last")])
    assert done.output.strip().endswith("report_2026-01-02T00-00-00.000001.html")


def test_a_report_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"t": [1.0]})
    report_file(file).write_text("mine")
    write_index(tmp_path)
    assert report_file(file).read_text() == "mine"


def test_a_damaged_run_is_listed_with_the_reason_and_texts_are_escaped(tmp_path: Path) -> None:
    _folder(tmp_path)
    (tmp_path / "<i>").mkdir()
    (tmp_path / "<i>" / "results_2026-01-03T00-00-00.000001.json").write_text("{")
    page = write_index(tmp_path).read_text()
    assert "cannot read" in page
    assert "&lt;i&gt;" in page
    assert "<i>" not in page


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no run"):
        write_index(tmp_path)
