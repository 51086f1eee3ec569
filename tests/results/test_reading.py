"""Results files of another shape than they are written in are refused in words, whoever reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.errors import FileFormatError
from assay.results.reading import read_results
from assay.results.sample_files import raw_lines
from tests.result_files import write_run

CHECK = {"task": "t", "metric": "exact_match,get-answer", "verdict": "fail", "reason": "low", "min": 0.5}
TOTALS = {"answers": 1, "attempts": 1, "prompt_tokens": 1, "completion_tokens": 1, "seconds": 1.0}
MISSHAPEN: list[dict[str, Any]] = [
    {"configs": 5},
    {"configs": {"t": None}},
    {"configs": {"t": {"filter_list": [{"name": "none", "filter": 5}]}}},
    {"configs": {"t": {"filter_list": [{"name": "none", "filter": [[None]]}]}}},
    {"n-shot": 5},
    {"results": {"t": []}},
    {"group_subtasks": [None]},
    {"group_subtasks": {"g": ["h"], "h": ["g"]}},
    {"group_subtasks": {"g": ["g"]}},
    {"higher_is_better": {"t": None}},
    {"n-samples": {"t": {"effective": "x"}}},
    {"model_name": "m", "versions": "\ud800"},
    *(
        {"assay": {name: value}}
        for name, value in (
            ("checks", [5]),
            ("checks", [{**CHECK, "baseline": -1}]),
            ("checks", [{**CHECK, "min": None}]),
            ("checks", [{**CHECK, "max": 1.0}]),
            ("checks", [{**CHECK, "metric": "\ud800"}]),
            ("failures", [{"task": "t"}]),
            ("failures", [{"task": "t", "doc_id": 1, "cause": "boredom"}]),
            ("fallbacks", []),
            ("fallbacks", {"t": "x"}),
            ("totals", {**TOTALS, "seconds": float("inf")}),
            ("totals", {**TOTALS, "completion_tokens": "many"}),
            ("totals", {**TOTALS, "latency_seconds": None}),
            ("provenance", 5),
            ("provenance", {"server": -1}),
            ("probe", {"findings": 1}),
            ("scores", [{"metric": "exact_match"}]),
        )
    ),
]


@pytest.mark.parametrize("part", MISSHAPEN, ids=[str(part) for part in MISSHAPEN])
def test_misshapen_results_are_refused(part: dict[str, Any], tmp_path: Path) -> None:
    file = write_run(tmp_path, {"t": [1, 0]})
    file.write_text(json.dumps(json.loads(file.read_text()) | part))
    with pytest.raises(FileFormatError, match="damaged"):
        read_results(file)


@pytest.mark.parametrize("command", ["triage", "report", "show"])
def test_commands_say_so_in_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_run(tmp_path, {"t": [1, 0]})
    file.write_text(json.dumps(json.loads(file.read_text()) | {"assay": {"checks": [5]}}))
    with pytest.raises(SystemExit) as ended:
        main([command, str(file)])
    assert ended.value.code == 2
    assert "$.assay.checks[0]" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["triage", "show", "compare"])
@pytest.mark.parametrize("name", ["a/b", "a\0b", "x" * 300])
def test_tasks_that_name_no_file_are_refused(
    command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_run(tmp_path, {"t": [1, 0]})
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "results": {name: document["results"]["t"]}, "configs": {name: {}}}))
    with pytest.raises(SystemExit) as ended:
        main([command, str(file), *([str(file)] if command == "compare" else [])])
    assert ended.value.code == 2
    assert "its name is no file name" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["triage", "report", "show", "compare"])
@pytest.mark.parametrize(
    "part",
    [
        {"doc_id": float("inf")},
        {"doc_id": "x"},
        {"doc_hash": "\ud800"},
        {"metrics": 5},
        {"arguments": {"a": {"arg_0": []}}},
    ],
    ids=str,
)
def test_misshapen_samples_are_refused(
    command: str, part: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_run(tmp_path, {"t": [1, 0]})
    (samples,) = tmp_path.glob("samples_*")
    first, *others = samples.read_text().splitlines()
    samples.write_text("\n".join([json.dumps(json.loads(first) | part), *others]))
    with pytest.raises(SystemExit) as ended:
        main([command, str(file), *([str(file)] if command == "compare" else [])])
    read = command != "compare" or "arguments" not in part
    needs_hashes = command in ("report", "compare") or "doc_hash" not in part
    assert ended.value.code == (2 if read and needs_hashes else 0)
    assert ("cannot be read as a sample" in capsys.readouterr().err) is (read and needs_hashes)


def test_what_is_not_read_may_have_any_shape(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"t": [1, 0]}, group="g")
    more = {"task_hashes": 5, "assay": {"checks": [CHECK], "totals": TOTALS, "later": [1], "failures": []}, "date": []}
    file.write_text(json.dumps(json.loads(file.read_text()) | more))
    document = read_results(file)
    assert document.additions.checks is not None
    assert [check.min for check in document.additions.checks] == [0.5]


@pytest.mark.parametrize(("kind", "read"), [("results", read_results), ("samples", lambda file: list(raw_lines(file)))])
def test_what_the_system_refuses_is_said_in_its_words_and_the_path_once(
    tmp_path: Path, kind: str, read: Callable[[Path], object]
) -> None:
    with pytest.raises(FileFormatError) as told:
        read(tmp_path)
    assert str(told.value) == f"cannot read the {kind} file {tmp_path}: Is a directory"


def test_reading_imports_no_lm_eval() -> None:
    script = "import sys, assay.results.reading; print([name for name in ('lm_eval', 'scipy') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
