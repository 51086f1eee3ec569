"""Verdicts against a baseline: exact on full runs, and true whatever failed documents would have scored."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checks.against_baseline import judge_against_baseline
from assay.checks.scope import Scope
from assay.results.check_results import CheckResult, Verdict
from assay.runs.files import read_run
from assay.runs.record import RecordedRun, Score, TaskRecord
from assay.stats.paired import mcnemar
from assay.types import Check
from tests.result_files import KEY, write_run


def record(scores: list[Any], name: str = "t") -> TaskRecord:
    """None: the document failed."""
    known = [doc_id for doc_id, score in enumerate(scores) if score is not None]
    kept: tuple[Score, ...] = tuple(tuple(s) if isinstance(s, list) else float(s) for s in scores if s is not None)
    hashes = tuple(f"{doc_id:08x}" for doc_id in known)
    failed = tuple(doc_id for doc_id, score in enumerate(scores) if score is None)
    return TaskRecord(
        name=name,
        settings={},
        doc_ids=tuple(known),
        documents=hashes,
        prompts=hashes,
        failed=failed,
        scores={KEY: kept},
    )


def judged(
    before: dict[str, list[Any]], after: dict[str, list[Any]], margin: float, *, allow: bool = False, **scope: Any
) -> CheckResult:
    check = Check(metric=KEY, task="t", baseline="b.json", margin=margin, allow_mismatch=allow)
    baseline = RecordedRun(
        source="b.json", model="m", date="", tasks={name: record(scores, name) for name, scores in before.items()}
    )
    candidate = {name: record(scores, name) for name, scores in after.items()}
    return judge_against_baseline(check, Scope(tasks=tuple(after), range=(0.0, 1.0), **scope), baseline, candidate)


def test_the_margin_itself_passes() -> None:
    before, after = [1] * 100, [0] * 3 + [1] * 97
    assert judged({"t": before}, {"t": after}, 0.03).verdict is Verdict.PASS
    result = judged({"t": before}, {"t": after}, 0.029)
    assert result.verdict is Verdict.FAIL
    assert result.difference == pytest.approx(-0.03)
    assert (result.lost, result.gained, result.n, result.value) == (3, 0, 100, 0.97)
    assert result.p_value == mcnemar(3, 0, "worse")
    assert result.interval is not None
    assert result.interval.low < -0.03 < result.interval.high


def test_less_can_be_better() -> None:
    rose = {"t": [0, 0, 0, 0]}, {"t": [1, 0, 0, 0]}
    assert judged(*rose, 0.2, higher_is_better=False).verdict is Verdict.FAIL
    assert judged(*rose, 0.25, higher_is_better=False).verdict is Verdict.PASS
    assert judged(*rose, 0.2, higher_is_better=False).lost == 1
    assert judged(*rose, 0.2).verdict is Verdict.PASS


def test_groups_are_weighted_as_lm_eval_does() -> None:
    before = {"t": [1, 1], "u": [1, 1, 1, 1, 1, 1]}
    after = {"t": [0, 0], "u": [1, 1, 1, 1, 1, 1]}
    assert judged(before, after, 0.3).difference == pytest.approx(-0.25)
    assert judged(before, after, 0.3, weighted_by_size=False).difference == pytest.approx(-0.5)
    assert judged(before, after, 0.3).verdict is Verdict.PASS
    assert judged(before, after, 0.3, weighted_by_size=False).verdict is Verdict.FAIL


def test_nothing_in_common_never_passes() -> None:
    assert judged({"u": [1]}, {"t": [1]}, 0.5).verdict is Verdict.INVALID
    assert judged({"t": [1, None]}, {"t": [None, 1]}, 1.0).verdict is Verdict.INVALID
    assert judged({"t": [None]}, {"t": [None]}, 1.0).verdict is Verdict.INVALID
    assert judged({"t": [1]}, {"t": [1, 1]}, 1.0).verdict is Verdict.INVALID
    assert judged({"t": [1]}, {"t": [1, 1]}, 1.0, allow=True).verdict is Verdict.PASS


@pytest.mark.parametrize("scores", [[1, float("nan")], [float("nan")] * 2])
def test_what_is_no_number_is_no_verdict(scores: list[Any]) -> None:
    for before, after in ((scores, [1, 1]), ([1, 1], scores), (scores, scores)):
        result = judged({"t": before}, {"t": after}, 0.5)
        assert result.verdict is Verdict.INVALID
        assert "not a number" in result.reason


def test_a_mismatch_is_named(tmp_path: Path) -> None:
    baseline = read_run(write_run(tmp_path / "a", {"t": [1, 0]}))
    candidate = read_run(write_run(tmp_path / "b", {"t": [1, 0]}, prompt="Other. ", version=2.0)).tasks
    check = Check(metric=KEY, task="t", baseline="b.json", margin=0.1)
    result = judge_against_baseline(check, Scope(tasks=("t",)), baseline, candidate)
    assert result.verdict is Verdict.INVALID
    assert "version: 1.0 -> 2.0" in result.reason
    assert "prompts: 2 of 2 differ" in result.reason


SCORES = st.sampled_from([0, 1, None])


@given(pairs=st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=7), margin=st.sampled_from([0.0, 0.1, 0.25, 0.5]))
def test_a_verdict_holds_whatever_failed_documents_would_have_scored(
    pairs: list[tuple[int | None, int | None]], margin: float
) -> None:
    before, after = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    verdict = judged({"t": before}, {"t": after}, margin).verdict
    holes = [score is None for pair in pairs for score in pair]
    flat = [score for pair in pairs for score in pair]
    possible = set()
    for filling in itertools.product((0, 1), repeat=sum(holes)):
        filler = iter(filling)
        filled = [next(filler) if score is None else score for score in flat]
        differences = [filled[place + 1] - filled[place] for place in range(0, len(filled), 2)]
        possible.add(sum(differences) / len(pairs) >= -margin)
    if verdict is Verdict.PASS:
        assert possible == {True}
    elif verdict is Verdict.FAIL:
        assert possible == {False}
    else:
        assert len(possible) == 2 or all(None in pair for pair in pairs)


def test_failed_documents_are_told_beside_the_margin_as_it_was_written() -> None:
    result = judged({"t": [1, 1, 1, 1]}, {"t": [1, 1, 1, None]}, 0.1)
    assert result.verdict is Verdict.INVALID
    assert result.reason.startswith(
        "with 1 failed sample it is anywhere from -0.2500 to +0.0000; "
        "+0.0000 against the baseline without it; margin 0.1"
    )


def test_a_difference_just_beyond_its_margin_is_not_shown_as_equal() -> None:
    result = judged({"t": [1] * 30_001}, {"t": [0] * 901 + [1] * 29_100}, 0.03)
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith("-0.03003 against the baseline, beyond the margin of 0.03")


def test_verdict_lists_count_verdict_by_verdict() -> None:
    result = judged({"t": [[True, True], [True]]}, {"t": [[True, False], [True]]}, 0.4)
    assert result.difference == pytest.approx(-1 / 3)
    assert result.verdict is Verdict.PASS
    assert result.lost == 1
    assert judged({"t": [[True], None]}, {"t": [[True], None]}, 0.9).verdict is Verdict.INVALID
