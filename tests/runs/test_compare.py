"""Two runs are compared on the documents that both scored, with the figures of the paired statistics."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from assay.cli.compare import compare as command
from assay.errors import SpecificationError
from assay.reports.comparison import comparison_text
from assay.runs.compare import Comparison, _adjusted, compare
from assay.runs.saving import save_baseline
from assay.stats.paired import Flips, mcnemar, newcombe_interval
from tests.result_files import KEY, write_run

BEFORE = [1, 1, 1, 1, 0, 0, 1, 0]
KINDS = ("avg@4", "pass@1", "pass@4", "maj@4")
AFTER = [1, 0, 0, 1, 1, 0, 1, 0]


def compared(before: Path, after: Path) -> Comparison:
    return compare(before, after)


def test_right_or_wrong_scores(tmp_path: Path) -> None:
    comparison = compared(write_run(tmp_path / "a", {"t": BEFORE}), write_run(tmp_path / "b", {"t": AFTER}))
    (change,) = comparison.changes
    assert (change.baseline, change.candidate, change.difference) == (5 / 8, 4 / 8, -1 / 8)
    assert (change.lost, change.gained, change.n, change.failed) == (2, 1, 8, 0)
    assert change.p_value == mcnemar(2, 1)
    assert change.interval == newcombe_interval(Flips(both_right=3, lost=2, gained=1, both_wrong=2))
    assert [(flip.doc_id, flip.change) for flip in comparison.flips] == [(1, "lost"), (2, "lost"), (4, "gained")]
    flip = comparison.flips[0]
    assert flip.before is not None
    assert flip.after is not None
    assert (flip.before.response, flip.after.response) == ("I say right 1", "I say wrong 1")


def test_failed_documents_take_no_part(tmp_path: Path) -> None:
    comparison = compared(
        write_run(tmp_path / "a", {"t": [1, 1, 0, None]}, failed={"t": [3]}),
        write_run(tmp_path / "b", {"t": [None, 1, 1, 1]}, failed={"t": [0]}),
    )
    (change,) = comparison.changes
    assert (change.n, change.failed, change.gained) == (2, 2, 1)
    assert comparison.mismatches == {}


def test_lower_is_better(tmp_path: Path) -> None:
    options = {"metric": "error", "higher_is_better": False}
    before = write_run(tmp_path / "a", {"t": [0, 0, 0]}, **options)  # type: ignore[arg-type]
    after = write_run(tmp_path / "b", {"t": [1, 0, 0]}, **options)  # type: ignore[arg-type]
    (change,) = compared(before, after).changes
    assert (change.lost, change.gained, change.higher_is_better) == (1, 0, False)
    assert compared(before, after).flips[0].change == "lost"


def test_graded_scores_and_verdict_lists(tmp_path: Path) -> None:
    (graded,) = compared(
        write_run(tmp_path / "a", {"t": [0.5, 0.25, 1.0, 0.0]}),
        write_run(tmp_path / "b", {"t": [0.25, 0.25, 0.5, 0.5]}),
    ).changes
    assert graded.difference == pytest.approx(-0.0625)
    assert (graded.lost, graded.gained) == (2, 1)
    assert graded.p_value == 1.0  # of 8 patterns of signs, 6 reach |-0.25|; none falls below
    (lists,) = compared(
        write_run(tmp_path / "c", {"t": [[True, True], [True], [False, False, True]]}),
        write_run(tmp_path / "d", {"t": [[True, False], [True], [False, False, False]]}),
    ).changes
    assert lists.difference == pytest.approx(2 / 6 - 4 / 6)
    assert lists.lost == 2
    assert lists.interval is not None


@pytest.mark.parametrize(("by_size", "difference"), [(True, -2 / 6), (False, (-1 + 0) / 2)])
def test_groups_are_weighted_as_their_aggregate(tmp_path: Path, by_size: bool, difference: float) -> None:
    before = write_run(tmp_path / "a", {"s": [1, 1], "t": [1, 0, 0, 0]}, group="g", by_size=by_size)
    after = write_run(tmp_path / "b", {"s": [0, 0], "t": [0, 1, 0, 0]}, group="g", by_size=by_size)
    group = compared(before, after).changes[0]
    assert (group.task, group.is_group, group.n) == ("g", True, 6)
    assert group.difference == pytest.approx(difference)
    assert (group.lost, group.gained) == (3, 1)
    if by_size:
        assert group.p_value == mcnemar(3, 1)
    assert group.interval is not None
    assert group.interval.low <= group.difference <= group.interval.high


def test_a_group_that_was_all_right_is_averaged_as_the_other_run_shows(tmp_path: Path) -> None:
    right = write_run(tmp_path / "a", {"s": [1, 1], "t": [1, 1, 1, 1]}, group="g", by_size=False)
    other = write_run(tmp_path / "b", {"s": [1, 0], "t": [1, 1, 1, 1]}, group="g", by_size=False)
    assert compared(right, other).changes[0].difference == -1 / 4
    assert compared(other, right).changes[0].difference == 1 / 4


def test_metrics_of_repeats_are_adjusted_by_kind(tmp_path: Path) -> None:
    before = {name: [1] * 12 for name in "tu"}
    after = {"t": [0] * 7 + [1] * 5, "u": [0] * 3 + [1] * 9}
    runs = [write_run(tmp_path / folder, scores) for folder, scores in (("a", before), ("b", after))]
    changes = compared(*runs).changes
    views = [msgspec.structs.replace(each, metric=f"exact_match_{kind},x") for kind in KINDS for each in changes]
    adjusted = _adjusted([*changes, *views])
    expected = [4 / 2**7, 2 / 2**3]
    assert [each.p_adjusted for each in adjusted] == expected * (1 + len(KINDS))


def test_p_values_are_adjusted_for_the_rows_that_are_shown(tmp_path: Path) -> None:
    before = {name: [1] * 12 for name in "tuv"}
    after = {"t": [0] * 7 + [1] * 5, "u": [0] * 3 + [1] * 9, "v": [1] * 12}
    one, other = write_run(tmp_path / "a", before), write_run(tmp_path / "b", after)
    changes = compared(one, other).changes
    assert [change.p_value for change in changes] == [2 / 2**7, 2 / 2**3, 1.0]
    assert [change.p_adjusted for change in changes] == [6 / 2**7, 4 / 2**3, 1.0]
    shown = CliRunner().invoke(command, [str(one), str(other)]).output
    assert "p Holm" in shown
    assert "adjusted for all 3 rows" in shown
    told = CliRunner().invoke(command, [str(one), str(other), "--markdown"]).output
    assert "adjusted for all 3 rows" in told
    assert "…" not in told


def test_the_p_value_decides_where_the_interval_says_otherwise(tmp_path: Path) -> None:
    """Five answers lost and none gained: Newcombe's interval leaves 0 out, and chance does so in 6 % of all cases."""
    runs = [write_run(tmp_path / name, {"t": [s] * 5 + [1] * 35}) for name, s in (("a", 1), ("b", 0))]
    (change,) = compared(*runs).changes
    assert change.interval is not None
    assert change.interval.high < 0 < 0.05 < change.p_value
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    console.print(comparison_text(compared(*runs), 0))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "p below 0.05 decides that a difference is more than chance" in shown
    assert "\x1b[31m-0.1250" not in shown


def test_a_run_beside_itself_is_said_to_be_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {"t": BEFORE})
    save_baseline(run, tmp_path / "b.json")
    words = "same run on both sides"
    for other in (run, run.parent, tmp_path / "b.json"):
        assert any(words in remark for remark in compared(run, other).remarks)
    assert words in CliRunner().invoke(command, [str(run), str(run)]).output
    again = write_run(tmp_path / "c", {"t": BEFORE}, stamp="2026-02-01T00-00-00.000001")
    assert not compared(run, again).remarks


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    comparison = compared(
        write_run(tmp_path / "a", {"t": [1, 0, 1], "u": [1]}), write_run(tmp_path / "b", {"t": [1, 0]}, version=2.0)
    )
    assert comparison.mismatches == {"t": ("version: 1.0 -> 2.0",)}
    assert any("only in" in remark and "u" in remark for remark in comparison.remarks)
    assert any("1 documents are only in" in remark for remark in comparison.remarks)
    with pytest.raises(SpecificationError, match="no task of"):
        compared(tmp_path / "a", write_run(tmp_path / "c", {"other": [1]}))


def test_the_command_shows_table_json_and_markdown(tmp_path: Path) -> None:
    for name, scores in (("a", BEFORE), ("b", AFTER), ("c", BEFORE)):
        write_run(tmp_path / name, {"t": scores})
    runs = [str(tmp_path / name) for name in "abc"]
    shown = CliRunner().invoke(command, runs).output
    assert "-0.1250" in shown
    assert "lost   t 1 exact_match,get-answer: target right 1" in shown
    assert "wrong 1  <-  I say wrong 1" in shown
    document = json.loads(CliRunner().invoke(command, [*runs, "--json"]).output)
    assert [one["changes"][0]["lost"] for one in document] == [2, 0]
    markdown = CliRunner().invoke(command, [*runs, "--markdown"]).output
    assert "| t | exact_match,get-answer | 0.6250 | 0.5000 | -0.1250 |" in markdown
    assert "<summary>3 flipped answers</summary>" in markdown


def test_hostile_answers_are_shown_as_text(tmp_path: Path) -> None:
    before, after = write_run(tmp_path / "a", {"t": [1]}), write_run(tmp_path / "b", {"t": [0]})
    samples = next((tmp_path / "b").glob("samples_*"))
    samples.write_text(samples.read_text().replace('"wrong 0"', json.dumps("<img src=x>\x1b[2J| @all")))
    shown = CliRunner().invoke(command, [str(before), str(after)]).output
    assert "\x1b[2J" not in shown
    markdown = CliRunner().invoke(command, [str(before), str(after), "--markdown"]).output
    assert "<img" not in markdown
    assert "@all" not in markdown
    assert "\x1b" not in markdown
    assert KEY.split(",")[1] in markdown
