"""What people see: safe text, a full table, quiet progress."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from assay._util.durations import format_duration, format_rate
from assay._util.text import printable
from assay.progress import Progress
from assay.reports.comparison import comparison_text
from assay.reports.progress import ProgressLines, show_progress
from assay.reports.remarks import remarks
from assay.reports.table import check_lines, correction_lines, score_table
from assay.reports.wide_tables import fitting_table
from assay.results.check_results import CheckResult, Verdict
from assay.results.document import AssayPart, ResultsDocument, Totals
from assay.runs.compare import Change, Comparison
from assay.scoring.corrections import Correction
from assay.scoring.measure import Score
from assay.stats.intervals import wilson
from assay.types import Answer, Failure, FailureCause, Outcome, Request, Sample


@given(st.text())
def test_no_text_can_move_the_cursor_or_reorder_a_line(text: str) -> None:
    shown = printable(text)
    assert all(character.isprintable() for character in shown)
    assert len(shown) <= 10 * 200 + 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – ünïcode 😀", "plain – ünïcode 😀"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
        ("x" * 300, "x" * 200 + "…"),
    ],
)
def test_hidden_characters_are_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def score(**changes: Any) -> Score:
    values = {
        "task": "gsm8k",
        "metric": "exact_match,strict-match",
        "value": 0.75,
        "stderr": 0.0217,
        "interval": wilson(300, 400),
        "bounds": None,
        "n": 400,
        "outcomes": {Outcome.ANSWERED: 390, Outcome.TRUNCATED: 10, Outcome.FAILED: 3},
    }
    return Score(**{**values, **changes})


def rendered(item: Any, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(item)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_every_figure() -> None:
    text = rendered(score_table([score(), score(task="\x1b[31mred", value=None, stderr=None, interval=None, n=0)]))
    head, first, second = text.splitlines()
    for heading in ("task", "metric", "value", "stderr", "95 % interval", "n", *Outcome):
        assert heading in head
    assert " ".join(first.split()) == "gsm8k exact_match,strict-match 0.7500 0.0217 0.7053 – 0.7899 400 390 10 0 0 3"
    assert "\x1b" not in second
    assert second.split()[2:5] == ["–", "–", "–"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 220])
def test_no_figure_of_a_score_is_cut_in_a_narrow_terminal(width: int) -> None:
    text = rendered(score_table([score(), score(task="mmlu_pro_computer_science", is_group=True)]), width)
    words = text.replace("\n", " ").replace(",", " ").split()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for figure in ("0.7500", "0.0217", "0.7053", "0.7899", "400", "390", "10", "3"):
        assert words.count(figure) == 2
    assert ("unextracted" in words) == (width == 220)  # no sample is, and there is room to say so


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_row_that_is_too_wide_takes_lines_of_its_own(width: int) -> None:
    headings = ("endpoint", "answers", "median seconds of all answers", "failed attempts")
    rows = [("http://node1.example:8000", "16", "0.050", "3 time-outs"), ("http://node2.example:8000\n", "14", "", "0")]
    text = rendered(fitting_table(headings, rows, names=1), width)
    assert max(map(len, text.splitlines())) <= width
    assert "http://node1.example:8000" in text
    assert "http://node2.example:8000\\n" in text
    words = " ".join(text.split())
    for figure in ("16", "0.050", "3 time-outs", "14"):
        assert figure in words
    assert ("answers 16, median" in words) == (width < 100)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_figure_of_a_comparison_is_cut_in_a_narrow_terminal(width: int) -> None:
    change = Change(
        task="gsm8k_cot",
        metric="exact_match,flexible-extract",
        baseline=0.25,
        candidate=0.5,
        difference=0.25,
        interval=wilson(300, 400),
        p_value=0.03,
        p_adjusted=0.03,
        lost=7,
        gained=11,
        n=60,
        failed=0,
        higher_is_better=True,
    )
    comparison = Comparison(
        baseline="a",
        candidate="b",
        baseline_model="m",
        candidate_model="m",
        changes=(change,),
        flips=(),
        mismatches={},
        remarks=(),
    )
    text = rendered(comparison_text(comparison, 0), width)
    assert "…" not in text
    for figure in ("0.2500", "0.5000", "+0.2500", "+0.7053", "+0.7899", "0.03", "7", "11", "60"):
        assert figure in text


def test_a_check_says_why() -> None:
    check = CheckResult(
        task="gsm8k", metric="acc,none", min=0.5, value=0.4, verdict=Verdict.FAIL, reason="0.4000 < 0.5"
    )
    assert rendered(check_lines([check])).strip() == "FAIL  gsm8k acc,none: 0.4000 < 0.5"


def follow(progress: Progress, failures: int = 1) -> None:
    progress.loaded({"a": 3, "b": 2}, 2, Path("run.journal"))
    progress.limited(64)
    for number in range(5):
        failed = number < failures
        response = Failure(cause=FailureCause.RESET, message="") if failed else Answer(text="x")
        request = Request("a", number, 0, 0, "generate_until", b"{}", f"a-{number}")
        progress.responded(request, response)
        progress.completed(Sample("a", number, None, [], [request]), [response])


def test_elsewhere_than_on_a_terminal_progress_is_a_few_plain_lines() -> None:
    stream = io.StringIO()
    with show_progress(stream) as progress:
        assert isinstance(progress, ProgressLines)
        follow(progress)
    opening, last = stream.getvalue().splitlines()
    assert opening == "2 tasks: 5 samples, going on with 2 answers kept in run.journal"
    assert last.startswith("5 of 5 samples, ")
    assert last.endswith(" requests/s, 64 at once, 1 failed")


def test_a_run_that_may_stop_early_promises_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    progress = ProgressLines(stream)
    progress.may_stop_early(5)
    progress.loaded({"a": 300, "b": 2}, 2, Path("run.journal"))
    request = Request("a", 0, 0, 0, "generate_until", b"{}", "a-0")
    monkeypatch.setattr("assay.reports.progress._LINE_EVERY_SECONDS", 0.0)
    progress.responded(request, Answer(text="x"))
    progress.completed(Sample("a", 0, None, [], [request]), [Answer(text="x")])
    opening, last = stream.getvalue().splitlines()
    assert opening.startswith("2 tasks: at most 5 of 302 samples, fewer once all checks are decided, going on with 2 ")
    assert last.startswith("1 of at most 5 samples, ")
    assert "left" not in last


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "0 s"), (90, "1 min 30 s"), (83520, "23 h 12 min"), (259140, "71 h 59 min"), (3.2e7, "370 days")],
)
def test_a_time_is_told_in_units_that_can_be_grasped(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("requests", "seconds", "words"),
    [
        (100, 10.0, "10.0 requests/s"),
        (7, 7.0, "1.0 requests/s"),
        (3, 4.0, "one request every 1.3 s"),
        (1, 9.94, "one request every 9.9 s"),
        (2, 24.0, "one request every 12 s"),
        (3, 600.0, "one request every 3 min 20 s"),
        (1, 7300.0, "one request every 2 h 1 min"),
        (1, 1e-7, "10000000.0 requests/s"),
    ],
)
def test_a_slow_rate_is_told_by_the_time_of_a_request(requests: int, seconds: float, words: str) -> None:
    assert format_rate(requests, seconds) == words


def test_a_line_of_progress_without_requests_has_no_rate() -> None:
    stream = io.StringIO()
    progress = ProgressLines(stream)
    progress.loaded({"a": 1}, 1, Path("run.journal"))
    progress.completed(Sample("a", 0, None, [], []), [])
    assert stream.getvalue().splitlines()[-1] == "1 of 1 samples"


def test_remarks() -> None:
    def of(totals: Totals) -> list[str]:
        return remarks(ResultsDocument(results={}, model_name="mine", assay=AssayPart(totals=totals)))

    plain = Totals(answers=3, attempts=3, prompt_tokens=1, completion_tokens=1, seconds=1.0)
    assert of(plain) == []
    streamed = msgspec.structs.replace(plain, ttft_seconds={"p50": 0.25, "p90": 0.5, "p99": 1.0})
    assert of(streamed) == ["time to first token  p50 0.250 s, p90 0.500 s, p99 1.000 s"]
    [warning] = of(msgspec.structs.replace(plain, other_models={"theirs\x1b[2J": 4, "a": 3, "b": 2, "c": 1}))
    assert warning == "warning: asked for 'mine', but 4 answers name 'theirs\\x1b[2J', 3 'a', 2 'b' and 1 more names"
    one = msgspec.structs.replace(plain, other_models={"theirs": 1})
    assert of(one) == ["warning: asked for 'mine', but 1 answer names 'theirs'"]


def test_what_lm_eval_gets_wrong_is_one_line_for_all_tasks_alike() -> None:
    alike = [Correction(task=f"t{number}", note="drawn anew") for number in range(5)]
    lines = correction_lines([*alike, Correction(task="u", note="a\nletter", values={"acc,none": 0.5, "f1,none": 1.0})])
    assert [line.plain for line in lines] == [
        "t0, t1, t2 and 2 more: drawn anew",
        "u: a\\nletter: acc,none 0.5000; f1,none 1.0000",
    ]


def test_a_display_of_progress_begins_anew_with_each_run() -> None:
    stream = io.StringIO()
    progress = show_progress(stream)
    for _ in range(2):
        with progress:
            follow(progress)
    lines = [line.partition(",")[0] for line in stream.getvalue().splitlines()]
    assert lines == ["2 tasks: 5 samples", "5 of 5 samples"] * 2
