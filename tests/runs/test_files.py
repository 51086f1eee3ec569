"""Finished runs are read back, whoever wrote them; what cannot be read is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import FileFormatError
from assay.runs.answers import read_answers
from assay.runs.files import read_run
from assay.runs.record import mean
from tests.result_files import FILTER, KEY, write_run


def test_a_run_is_read_with_its_scores_failures_and_settings(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"a": [1, 0, None, 1]}, failed={"a": [2]})
    run = read_run(file)
    task = run.tasks["a"]
    assert task.doc_ids == (0, 1, 3)
    assert task.failed == (2,)
    assert task.scores == {KEY: (1.0, 0.0, 1.0)}
    assert task.values[KEY] == pytest.approx(2 / 3)
    assert task.settings["generation_kwargs"]["temperature"] == 0.0
    assert task.higher_is_better == {KEY: True}
    assert (run.model, run.documents, run.stopped_early) == ("m", 3, False)


def test_a_folder_stands_for_its_newest_run(tmp_path: Path) -> None:
    write_run(tmp_path / "m", {"a": [0, 0]}, stamp="2026-01-01T00-00-00.000001")
    newest = write_run(tmp_path / "m", {"a": [1, 1]}, stamp="2026-01-02T00-00-00.000001")
    assert read_run(tmp_path / "m").source == str(newest)
    assert read_run(tmp_path).source == str(newest)


def test_a_samples_file_stands_for_its_task(tmp_path: Path) -> None:
    write_run(tmp_path, {"a": [1, 0], "b": [1, 1]})
    samples = tmp_path / "samples_a_2026-01-01T00-00-00.000001.jsonl"
    beside = read_run(samples)
    assert list(beside.tasks) == ["a"]
    assert beside.tasks["a"].settings
    lonely = samples.rename(tmp_path / "elsewhere.jsonl")
    alone = read_run(lonely)
    assert alone.tasks["elsewhere"].scores == {KEY: (1.0, 0.0)}
    assert alone.tasks["elsewhere"].settings == {}


@pytest.mark.parametrize(("by_size", "expected"), [(True, {KEY: True}), (False, {KEY: False})])
def test_the_weighting_of_a_group_is_found_from_its_value(
    tmp_path: Path, by_size: bool, expected: dict[str, bool]
) -> None:
    run = read_run(write_run(tmp_path, {"a": [1, 0], "b": [1, 1, 1, 0]}, group="g", by_size=by_size))
    assert run.groups["g"].tasks == ("a", "b")
    assert run.groups["g"].weighted_by_size == expected


def test_verdict_lists_are_kept_and_other_metrics_are_not_taken_for_means(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "lists", {"a": [[True, False], [True]]}))
    assert run.tasks["a"].scores[KEY] == ((True, False), (True,))
    assert mean(run.tasks["a"].scores[KEY]) == pytest.approx(2 / 3)
    file = write_run(tmp_path / "other", {"a": [1, 0]})
    document = json.loads(file.read_text())
    document["results"]["a"][KEY] = 17.3  # no mean of 1 and 0
    file.write_text(json.dumps(document))
    assert read_run(file).tasks["a"].scores == {}
    assert read_run(file).tasks["a"].values == {KEY: 17.3}


def test_the_place_of_a_function_in_memory_is_no_setting(tmp_path: Path) -> None:
    first, second = (
        read_run(write_run(tmp_path / place, {"a": [1]}, settings={"process_results": f"<function f at {place}>"}))
        for place in ("0x7f01", "0x7f02")
    )
    assert first.tasks["a"].settings == second.tasks["a"].settings


def test_texts_of_chosen_answers(tmp_path: Path) -> None:
    task = read_run(write_run(tmp_path, {"a": [1, 0, 1]})).tasks["a"]
    answers = read_answers(task, FILTER, [1])
    assert list(answers) == [1]
    assert answers[1].response == "I say wrong 1"
    assert (answers[1].extracted, answers[1].target) == ("wrong 1", "right 1")


def test_not_a_number_is_read(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"a": [1, 0]})
    samples = tmp_path / "samples_a_2026-01-01T00-00-00.000001.jsonl"
    samples.write_text(samples.read_text().replace('"question": "a question 1"', '"question": NaN'))
    assert read_run(file).tasks["a"].scores == {KEY: (1.0, 0.0)}


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no run"):
        read_run(tmp_path / "nothing.json")
    with pytest.raises(FileFormatError, match=r"no results_\*\.json"):
        read_run(tmp_path)
    write_run(tmp_path / "first", {"a": [1]})
    write_run(tmp_path / "second", {"a": [1]})
    with pytest.raises(FileFormatError, match="several models"):
        read_run(tmp_path)
    file = write_run(tmp_path / "third", {"a": [1, 0]})
    samples = next((tmp_path / "third").glob("samples_*"))
    samples.write_text(samples.read_text() + '{"doc_id": 2\n')
    with pytest.raises(FileFormatError, match="line 3"):
        read_run(file)
    samples.unlink()
    with pytest.raises(FileFormatError, match="--log_samples"):
        read_run(file)


@pytest.mark.oracle
def test_recorded_runs_of_lm_eval_are_read(oracles_dir: Path) -> None:
    run = read_run(oracles_dir / "lm_eval" / "chat_mmlu_pro")
    key = "exact_match,custom-extract"
    assert run.groups["mmlu_pro"].weighted_by_size == {key: True}
    assert len(run.groups["mmlu_pro"].tasks) == len(run.tasks) == 14
    for task in run.tasks.values():
        assert mean(task.scores[key]) == pytest.approx(task.values[key])
    ifeval = read_run(oracles_dir / "lm_eval" / "chat_leaderboard_ifeval").tasks["leaderboard_ifeval"]
    assert set(ifeval.scores) == set(ifeval.values)
