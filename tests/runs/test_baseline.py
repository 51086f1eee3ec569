"""A baseline file gives back what the run said, is small, and changes little when the run does."""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from assay.cli.baseline import baseline as command
from assay.errors import FileFormatError, OutputError, SpecificationError
from assay.runs.answers import read_answers
from assay.runs.baseline import load_baseline
from assay.runs.files import read_run
from assay.runs.record import RecordedRun, TaskRecord
from assay.runs.saving import save_baseline
from tests.result_files import FILTER, KEY, write_run

scores = st.one_of(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=250),
    st.lists(st.floats(0, 1), min_size=1, max_size=130),
    st.lists(st.lists(st.booleans(), min_size=1, max_size=4).map(tuple), min_size=1, max_size=130),
)


def record(values: list[float], doc_ids: list[int] | None = None) -> TaskRecord:
    hashes = [hashlib.sha256(str(place).encode()).hexdigest()[:8] for place in range(len(values))]
    return TaskRecord(
        name="t",
        settings={"version": 1.0},
        doc_ids=tuple(doc_ids or range(len(values))),
        documents=tuple(hashes),
        prompts=tuple(reversed(hashes)),
        failed=(len(values) + 7,),
        scores={KEY: tuple(values)},
        values={KEY: 0.5},
        higher_is_better={KEY: True},
    )


def run_of(*tasks: TaskRecord) -> RecordedRun:
    return RecordedRun(source="here", model="m", date="now", tasks={task.name: task for task in tasks})


@given(values=scores, gap=st.integers(0, 3))
def test_what_was_saved_comes_back(tmp_path_factory: pytest.TempPathFactory, values: list[float], gap: int) -> None:
    file = tmp_path_factory.mktemp("baseline") / "b.json"
    doc_ids = [place + gap * (place > 2) for place in range(len(values))]
    saved = run_of(record(values, doc_ids))
    save_baseline(saved, file)
    assert msgspec.structs.replace(load_baseline(file), source="here") == saved
    assert read_run(file) == load_baseline(file)


def test_mmlu_pro_fits_into_200_kb_and_one_changed_answer_into_one_line(tmp_path: Path) -> None:
    def saved(name: str, flipped: int | None = None) -> list[str]:
        values = [float(place % 3 == 0) for place in range(12032)]
        if flipped is not None:
            values[flipped] = 1 - values[flipped]
        save_baseline(run_of(record(values)), tmp_path / name)
        assert (tmp_path / name).stat().st_size < 200_000
        return (tmp_path / name).read_text().splitlines()

    changed = [line for line in difflib.ndiff(saved("a"), saved("b", flipped=700)) if line[0] in "+-"]
    assert len(changed) == 2


def test_texts_are_kept_only_when_asked_for(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", {"a": [1, 0]}))
    save_baseline(run, tmp_path / "without.json")
    save_baseline(run, tmp_path / "with.json", with_texts=True)
    assert "I say" not in (tmp_path / "without.json").read_text()
    assert read_answers(read_run(tmp_path / "without.json").tasks["a"], FILTER, [1]) == {}
    texts = read_answers(read_run(tmp_path / "with.json").tasks["a"], FILTER, [1])
    assert texts[1].response == "I say wrong 1"


def test_what_can_be_no_baseline_is_refused(tmp_path: Path) -> None:
    partial = msgspec.structs.replace(run_of(record([1.0])), stopped_early=True)
    with pytest.raises(SpecificationError, match="stopped early"):
        save_baseline(partial, tmp_path / "b.json")
    with pytest.raises(SpecificationError, match="no scores"):
        save_baseline(run_of(), tmp_path / "b.json")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        save_baseline(run_of(record([1.0])), tmp_path / "file" / "b.json")


def test_the_command_says_what_it_kept_and_what_not(tmp_path: Path) -> None:
    file = write_run(tmp_path / "run", {"a": [1, 0, 1]})
    document = json.loads(file.read_text())
    document["results"]["a"]["bleu,none"] = 17.5
    file.write_text(json.dumps(document))
    done = CliRunner().invoke(command, ["save", str(tmp_path / "run"), str(tmp_path / "kept" / "b.json")])
    assert done.exit_code == 0, done.output
    assert "3 documents of a, " in done.output
    assert "not per document, so left out: a bleu,none" in done.output
    assert load_baseline(tmp_path / "kept" / "b.json").tasks["a"].scores == {KEY: (1.0, 0.0, 1.0)}


def test_a_damaged_baseline_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    with pytest.raises(FileFormatError, match="there is no baseline"):
        load_baseline(file)
    save_baseline(run_of(record([1.0, 0.0, 1.0])), file)
    whole = json.loads(file.read_text())
    for key, value in (("scores", {KEY: ["10"]}), ("scores", {KEY: ["1x1"]}), ("documents", ["?"]), ("doc_ids", "x")):
        damaged = json.loads(json.dumps(whole))
        damaged["tasks"]["t"][key] = value
        file.write_text(json.dumps(damaged, indent=1))
        with pytest.raises(FileFormatError, match="damaged"):
            load_baseline(file)
    whole["assay_baseline"] = 2
    file.write_text(json.dumps(whole, indent=1))
    with pytest.raises(FileFormatError, match="newer Assay"):
        load_baseline(file)


def test_where_the_newest_run_was_stopped_early_the_newest_whole_one_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(folder, {"a": [1, 0]}, stamp="2026-01-01T00-00-00.000001")
    whole = write_run(folder, {"a": [1, 1]}, stamp="2026-01-02T00-00-00.000001")
    newest = write_run(folder, {"a": [1]}, stamp="2026-01-03T00-00-00.000001")
    document = json.loads(newest.read_text())
    document["assay"] = {
        "early_stopping": {"documents": 1, "asked": 1, "population": 2, "order_seed": 0, "tasks": {"a": [1, 2]}}
    }
    newest.write_text(json.dumps(document))
    done = CliRunner().invoke(command, ["save", str(folder), str(tmp_path / "b.json")])
    assert isinstance(done.exception, SpecificationError)
    assert str(done.exception).endswith(f"; the newest whole run there is {whole}")
    for file in folder.glob("results_2026-01-0[12]*"):
        file.unlink()
    done = CliRunner().invoke(command, ["save", str(folder), str(tmp_path / "b.json")])
    assert isinstance(done.exception, SpecificationError)
    assert "whole run" not in str(done.exception)
