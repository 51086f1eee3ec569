"""Documents are paired by what they say; whatever else differs is named."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from assay.runs.files import read_run
from assay.runs.pairing import pair_tasks, settings_changes
from assay.runs.record import Score, TaskRecord
from tests.result_files import KEY, SETTINGS, write_run


def task(folder: Path, scores: list[int | None], **options: object) -> TaskRecord:
    return read_run(write_run(folder, {"a": scores}, **options)).tasks["a"]  # type: ignore[arg-type]


def record(documents: list[str], doc_ids: list[int] | None = None) -> TaskRecord:
    scores: dict[str, tuple[Score, ...]] = {KEY: tuple(float(document) for document in documents)}
    ids = tuple(doc_ids or range(len(documents)))
    return TaskRecord(
        name="a", settings={}, doc_ids=ids, documents=tuple(documents), prompts=tuple(documents), scores=scores
    )


def test_equal_runs_pair_fully(tmp_path: Path) -> None:
    pairing = pair_tasks(task(tmp_path / "a", [1, 0, 1]), task(tmp_path / "b", [1, 1, 0]))
    assert pairing.mismatches == ()
    assert pairing.scores(KEY) == [(1.0, 1.0), (0.0, 1.0), (1.0, 0.0)]


def test_failed_documents_are_pairs_without_a_score(tmp_path: Path) -> None:
    before = task(tmp_path / "a", [None, 0, 1], failed={"a": [0]})
    after = task(tmp_path / "b", [1, None, 0], failed={"a": [1]})
    pairing = pair_tasks(before, after)
    assert pairing.mismatches == ()
    assert pairing.scores(KEY) == [(None, 1.0), (0.0, None), (1.0, 0.0)]


def test_what_changed_is_named(tmp_path: Path) -> None:
    before = task(tmp_path / "a", [1, 0])
    hot = {**SETTINGS, "generation_kwargs": {"until": ["\n"], "temperature": 2.0}}
    after = task(tmp_path / "b", [1, 0, 1], prompt="Be brief. ", version=2.0, settings=hot)
    assert pair_tasks(before, after).mismatches == (
        "version: 1.0 -> 2.0",
        "generation_kwargs.temperature: 0.0 -> 2.0",
        "data: 1 of 3 documents are not in the baseline",
        "prompts: 2 of 2 differ",
    )


def test_a_part_of_the_baselines_documents_is_no_mismatch(tmp_path: Path) -> None:
    pairing = pair_tasks(task(tmp_path / "a", [1, 0, 1, 1]), task(tmp_path / "b", [1, 0]))
    assert pairing.mismatches == ()
    assert pairing.not_asked == 2


def test_settings_that_a_run_does_not_tell_are_not_compared() -> None:
    assert settings_changes({}, {"version": 1}) == []
    assert settings_changes({"filter_list": [1, 2]}, {"filter_list": [1]}) == ["filter_list: [1, 2] -> [1]"]


@given(st.lists(st.sampled_from("0123456789"), min_size=1, max_size=30), st.integers())
def test_documents_are_found_wherever_they_moved(documents: list[str], seed: int) -> None:
    """Also where several are alike: each is paired once, with one that says the same."""
    moved = documents.copy()
    random.Random(seed).shuffle(moved)
    pairing = pair_tasks(record(documents), record(moved))
    assert pairing.mismatches == ()
    assert sorted(pair.before for pair in pairing.pairs if pair.before is not None) == list(range(len(documents)))
    assert all(before == after for before, after in pairing.scores(KEY))


def test_a_failed_document_takes_no_other_ones_place() -> None:
    """Its number is all that is known of it; where the document of that number moved, it is another one's."""
    before = record(["1", "2", "3"])
    after = msgspec.structs.replace(record(["3", "1"], [0, 1]), failed=(2,))
    pairing = pair_tasks(before, after)
    assert pairing.scores(KEY) == [(3.0, 3.0), (1.0, 1.0), (None, None)]
    failed_before = msgspec.structs.replace(record(["1", "2"], [0, 2]), failed=(1,))
    assert pair_tasks(failed_before, record(["2", "1"])).scores(KEY) == [(2.0, 2.0), (1.0, 1.0)]
