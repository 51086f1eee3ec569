"""The report's file: what is in it, how large it gets, what it lets run. Browsers open it in tests/web."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import random
import re
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from assay._util.text import visible
from assay.cli.output import report_beside
from assay.cli.report import report as report_command
from assay.diagnosis import Cause, Confidence, Example, Finding, Triage
from assay.diagnosis.findings import CauseShare, LossReference, Waterfall
from assay.errors import FileFormatError, OutputError
from assay.reports.html import report_file, write_report
from assay.reports.page import outline
from assay.reports.page_budget import MOST_HELD, TextStore
from assay.reports.page_samples import SamplePacker
from assay.reports.page_texts import cut
from assay.reports.page_wrong_answers import wrong_answers
from assay.reports.templates import ASSETS
from assay.reports.triage import triage_text
from assay.reports.waterfall import steps
from assay.results.check_results import CheckResult, Verdict
from assay.results.reading import read_results
from assay.runs.samples import Filtered, Message, Prompt, RunSample
from assay.types import Answer, Failure, FailureCause, Outcome
from tests.result_files import write_run

texts = st.text(st.characters(exclude_categories=[]), max_size=200)


def inflated(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)).decode())


def written(page: str) -> tuple[Any, list[Any]]:
    """A report's index, and its samples' texts."""
    index = inflated(re.findall('<script type="text/plain" id="data">(.*)</script>', page)[0])
    chunks = re.findall('<script type="text/plain" class="texts">(.*)</script>', page)
    return index, [entry for chunk in chunks for entry in inflated(chunk)]


def sample(doc_id: int, question: str = "?", answer: str = "!", *, right: bool = True, task: str = "t") -> RunSample:
    outcome = Outcome.ANSWERED if answer else Outcome.EMPTY
    return RunSample(
        task=task,
        doc_id=doc_id,
        doc=None,  # type: ignore[arg-type]
        target="gold",
        prompts=(Prompt(content=(Message("user", "example"), Message("user", question))),),
        responses=(Answer(text=answer),),
        filters={"none": Filtered(extracted=answer, metrics={"acc": float(right)}, outcome=outcome)},
    )


def packed(*samples: RunSample, budget: int = 4_000_000) -> Any:
    packer = SamplePacker({"t": "acc,none"})
    for one in samples:
        packer.add(one)
    return packer.pack(budget)


def unfolded(entry: Any, reference: list[list[str]]) -> list[list[str]]:
    """As the page does it: positions count UTF-16 units."""
    equal, *others = entry["p"][0][0]
    whole = [list(turn) for turn in reference[:equal]]
    for role, shared, rest in others:
        start = reference[len(whole)][1].encode("utf-16-le", "surrogatepass")[: 2 * shared] if shared else b""
        whole.append([role, start.decode("utf-16-le", "surrogatepass") + rest])
    return whole


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5), texts)
def test_prompts_come_back_whole(pairs: list[tuple[str, str]], start: str) -> None:
    start *= 4
    found = packed(*(sample(place, start + question, answer) for place, (question, answer) in enumerate(pairs)))
    entries = [entry for chunk in found.texts.chunks for entry in inflated(chunk)]
    for entry, (question, answer) in zip(entries, pairs, strict=True):
        turns = unfolded(entry, found.index["references"][0])
        assert turns == [["user", "example"], ["user", start + question]]
        assert entry["a"][0]["text"] == answer
    assert len(found.texts.whole) == found.count == len(pairs)
    assert found.index["whole"] == ""


@given(st.text(max_size=60), st.integers(0, 60))
def test_a_cut_text_keeps_its_two_ends(text: str, limit: int) -> None:
    shown = cut(text, limit)
    if isinstance(shown, str):
        assert shown == text
        assert len(text) <= limit
    else:
        head, omitted, tail = shown
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + len(tail) == limit
        assert len(head) + omitted + len(tail) == len(text)


def test_what_does_not_fit_is_cut_and_what_is_unusual_stays_whole() -> None:
    digits = [random.Random(number).randbytes(500).hex() for number in range(600)]
    samples = [sample(number, digits[number], digits[-number], right=number % 2 == 0) for number in range(600)]
    samples[17] = sample(17, digits[17], "")
    budget = 300_000
    found = packed(*samples, budget=budget)
    assert 0 < sum(map(len, found.texts.chunks)) <= budget
    whole = [number for number, flag in enumerate(found.index["whole"]) if flag == "1"]
    assert 20 < len(whole) < 600
    assert found.texts.whole == set(whole)
    assert 17 in whole
    wrong = sum(number % 2 for number in whole)
    assert wrong > 1.5 * (len(whole) - wrong) > 0
    entries = [entry for chunk in found.texts.chunks for entry in inflated(chunk)]
    assert len(entries) == 600
    for number, entry in enumerate(entries):
        assert isinstance(entry["a"][0]["text"], str) == (number in whole)


def test_memory_does_not_grow_with_the_run() -> None:
    store = TextStore()
    tracemalloc.start()
    for number in range(2 * MOST_HELD // 20_000):
        store.add({"p": [], "a": [{"text": random.Random(number).randbytes(10_000).hex()}]}, 1 if number % 100 else 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.6 * MOST_HELD
    packed = store.pack(500_000)
    assert 0 < sum(map(len, packed.chunks)) <= 500_000
    assert packed.whole
    assert all(number % 100 == 0 for number in packed.whole)


def test_texts_that_cannot_be_cut_further_are_not_gone_through_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shortenings: list[None] = []
    shorten = TextStore._shorten

    def counted(store: TextStore) -> None:
        shortenings.append(None)
        shorten(store)

    monkeypatch.setattr("assay.reports.page_budget.MOST_HELD", 10_000)
    monkeypatch.setattr(TextStore, "_shorten", counted)
    store = TextStore()
    for _ in range(2000):
        store.add({"p": [], "a": [{"text": "x" * 50}]}, 1)
    assert 0 < len(shortenings) < 10
    assert len(store.pack(1_000_000).whole) < 2000


def test_failures_choices_and_odd_numbers_are_kept() -> None:
    failed = RunSample(
        task="t",
        doc_id=0,
        doc=None,  # type: ignore[arg-type]
        target="",
        prompts=(),
        responses=(),
        filters={},
        failure=Failure(cause=FailureCause.RESET, message="gone"),
    )
    choices = RunSample(
        task="t",
        doc_id=1,
        doc=None,  # type: ignore[arg-type]
        target="1",
        prompts=(Prompt(content="Q", continuation=" yes"), Prompt(content="Q", continuation=" no")),
        responses=(Answer(text=None, logprob=-2.0), Answer(text=None, logprob=-1.0)),
        filters={"none": Filtered(extracted="[]", metrics={"acc": float("nan")}, outcome=Outcome.ANSWERED)},
    )
    found = packed(failed, choices)
    first, second = msgspec.json.decode(found.index["rows"])
    assert first == [0, "", [], []]
    assert second[2] == [["1: no", 0]]
    assert second[3] == [None]
    entries = inflated(found.texts.chunks[0])
    assert entries[0]["x"] == ["reset", "gone"]
    assert entries[1]["p"][1] == [None, " no"]


@given(texts)
def test_text_is_visible_but_keeps_its_lines(text: str) -> None:
    shown = visible(text)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert shown.count("\n") == text.count("\n")


def test_only_its_own_script_may_run_and_nothing_is_fetched(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path, {"t": [1.0, 0.0]})).read_text()
    policy = html.unescape(re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', page)[0])
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    scripts = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", page, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    for rule, contents in (("script-src", scripts), ("style-src", styles)):
        hashes = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents]
        assert rules[rule].split() == [f"'sha256-{found}'" for found in hashes]
    assert len(scripts) == 2
    assert not re.findall(
        r"""<(?:link|img|iframe|base|object)\b|\bsrc=|\bstyle=|\bon\w+=""", re.sub("(?s)<script.*?</script>", "", page)
    )
    assert "innerHTML" not in page


def test_what_servers_and_files_say_is_escaped(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"t": [1.0]})
    document = json.loads(file.read_text())
    document["model_name"] = "<script>alert(1)</script>\u202e\x00"
    document["assay"] = {
        "scores": [],
        "checks": [],
        "failures": [{"task": "t", "doc_id": 7, "cause": "<b>", "message": "'\"><i>"}],
    }
    document["assay"]["failures"][0]["cause"] = "server_error"
    file.write_text(json.dumps(document))
    page = write_report(file).read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\x00" in page


def test_a_run_without_samples_has_a_report_of_its_scores(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"t": [1.0, 0.0]})
    for samples in tmp_path.glob("samples_*"):
        samples.unlink()
    page = write_report(file).read_text()
    assert "0.5000" in page
    assert "kept no samples" in page


def test_the_comparison_with_a_baseline_is_in_it(tmp_path: Path) -> None:
    before = write_run(tmp_path / "a", {"t": [1.0] * 30})
    after = write_run(tmp_path / "b", {"t": [1.0] * 20 + [0.0] * 10})
    index, entries = written(write_report(after, baseline=before).read_text())
    assert [row[4] for row in index["rows"] if len(row) > 4] == [{"exact_match,get-answer": "lost"}] * 10
    assert entries[-1]["b"] == ["I say right 29", "right 29"]


def with_assays_part(file: Path, **parts: Any) -> Path:
    document = json.loads(file.read_text())
    document["assay"] = {**document.get("assay", {}), **parts}
    file.write_text(json.dumps(document))
    return file


def test_why_the_run_scored_low_is_told_with_links_to_samples(tmp_path: Path) -> None:
    finding = Finding(
        cause=Cause.TRUNCATED,
        evidence="12 of 40 answers <cut>",
        advice="raise max_gen_toks",
        samples=12,
        of=40,
        confidence=Confidence.CERTAIN,
        score=0.5,
        score_repaired=0.75,
        examples=(Example("t", 1, "and so\u202e on"),),
    )
    found = Triage(run="r", samples=40, score=0.5, headline="answers are cut off", findings=(finding,))
    file = with_assays_part(write_run(tmp_path, {"t": [1.0, 0.0]}), triage=found.recorded)
    page = write_report(file).read_text()
    assert '<p class="headline">answers are cut off</p>' in page[: page.index('<section id="triage">')]
    section = page[page.index('<section id="triage">') : page.index('<section id="samples">')]
    for part in (
        "answers are cut off at the token limit",
        "explains +0.2500",
        "12 of 40 answers &lt;cut&gt;",
        "raise max_gen_toks",
        '<a href="#t/1">t 1</a> <span class="text">and so\\u202e on</span>',
    ):
        assert part in section


def top_of(page: str) -> str:
    """What stands before the table of scores."""
    return page[page.index('<section id="scores"') : page.index("<thead>")]


def test_the_top_says_verdict_score_beside_the_threshold_and_how_the_causes_share_the_loss(tmp_path: Path) -> None:
    finding = Finding(
        cause=Cause.TRUNCATED,
        evidence="2 of 4 answers",
        advice="raise max_gen_toks",
        samples=2,
        of=4,
        confidence=Confidence.CERTAIN,
        examples=(Example("t", 3, ""),),
    )
    share = CauseShare(cause=Cause.TRUNCATED, title="cut <off>", gain=0.25, low=0.125, high=0.5, is_measured=True)
    found = Triage(
        run="r",
        samples=4,
        score=0.25,
        headline="answers are cut off",
        findings=(finding,),
        waterfall=Waterfall(
            score=0.25, shares=(share,), unexplained=0.375, target=0.875, target_is=LossReference.CHECK
        ),
    )
    check = CheckResult(
        task="t", metric="exact_match,get-answer", min=0.875, value=0.25, verdict=Verdict.FAIL, reason="too low"
    )
    file = with_assays_part(
        write_run(tmp_path, {"t": [1.0, 0.0, 0.0, 0.0]}),
        triage=found.recorded,
        checks=[msgspec.to_builtins(check)],
    )
    top = top_of(write_report(file).read_text())
    places = [
        top.index(part)
        for part in (
            "fail</span>",
            '<b class="score">0.2500</b>',
            "demanded &gt;= 0.875",
            "answers are cut off",
            "0.2500</td>",
            "+0.2500</td>",
            "cut &lt;off&gt; (measured, 0.1250 to 0.5000)",
            "+0.3750</td>",
            "unexplained</th>",
            "0.8750</td>",
            "what the check demands",
            "3 in the list",
            'href="#t/3"',
            'href="#t/1"',
            'href="#t/2"',
        )
    ]
    assert places == sorted(places)
    terminal = Console(width=200, file=io.StringIO(), record=True)
    terminal.print(triage_text(found))
    lines = [" ".join(line.split()) for line in terminal.export_text().splitlines()]
    for step in steps(found.waterfall):
        assert f"{step.figure} {step.words}" in lines


def test_the_wrong_answers_at_the_top_are_lost_ones_before_others(tmp_path: Path) -> None:
    before = write_run(tmp_path / "a", {"t": [0.0] * 10 + [1.0] * 2})
    after = write_run(tmp_path / "b", {"t": [0.0] * 12})
    top = top_of(write_report(after, baseline=before).read_text())
    assert "12 in the list" in top
    assert re.findall(r'href="#t/(\d+)"', top)[:2] == ["10", "11"]
    healthy = write_run(tmp_path / "c", {"t": [1.0] * 3})
    assert "in the list" not in top_of(write_report(healthy).read_text())


@given(st.lists(texts, min_size=2, max_size=4), texts, texts)
def test_a_wrong_answer_shows_the_end_of_its_question(questions: list[str], start: str, said: str) -> None:
    packer = SamplePacker({"t": "acc,none"})
    for place, question in enumerate(questions):
        packer.add(sample(place, f"{start * 4}{question}", f"({said})", right=False))
    found = wrong_answers(packer, ())
    assert found.count == len(questions)
    for one in found.shown:
        whole = f"{start * 4}{questions[one.doc_id]}".strip()
        assert one.question == (whole if len(whole) <= 280 else f"…{whole[-280:]}")
        assert (one.answer, one.target) == (f"({said})", "gold")


def test_a_baseline_brings_its_triage(tmp_path: Path) -> None:
    before = write_run(tmp_path / "a", {"t": [1.0] * 60})
    after = write_run(tmp_path / "b", {"t": [1.0] * 30 + [0.0] * 30})
    assert "answers come in another form than the baseline" in write_report(after, baseline=before).read_text()
    assert '<section id="triage">' not in write_report(after).read_text()


def test_speed_and_endpoints_are_told(tmp_path: Path) -> None:
    latencies = {"p50": 0.25, "p90": 150.0, "p99": None}
    totals = {
        "answers": 3000,
        "attempts": 3100,
        "prompt_tokens": 1234567,
        "completion_tokens": 60000,
        "answers_without_usage": 2,
        "latency_seconds": latencies,
        "ttft_seconds": {"p50": 0.02},
        "other_models": {"another": 7},
        "seconds": 600.0,
    }
    endpoint = {
        "url": "http://a:1",
        "answers": 3000,
        "share": 1.0,
        "failures": {},
        "prompt_tokens": 1234567,
        "completion_tokens": 60000,
        "median_latency_seconds": 0.2,
        "requests": 3100,
        "faults": {"reset": 4},
        "times_set_aside": 1,
        "short_prompts": None,
    }
    file = with_assays_part(write_run(tmp_path, {"t": [1.0]}), totals=totals, endpoints=[endpoint])
    page = write_report(file).read_text()
    for part in (
        "1,234,567",
        "250 ms",
        "2 min 30 s",
        "20 ms",
        "10 min 0 s",
        "100",
        "2 answers without a count",
        "4 reset",
    ):
        assert f"<dd>{part}" in page or f">{part}<" in page
    assert "but 7 answers name &#39;another&#39;" in page


@pytest.mark.oracle
def test_recorded_runs_of_lm_eval_have_reports(oracles_dir: Path, tmp_path: Path) -> None:
    for file in oracles_dir.glob("lm_eval/*/results_*.json"):
        page = write_report(file, output=tmp_path / "report.html").read_text()
        index, entries = written(page)
        assert len(index["rows"]) == len(entries) > 0
        values = json.loads(file.read_text())["results"].values()
        for value in (value for entry in values for key, value in entry.items() if "," in key and "stderr" not in key):
            assert not isinstance(value, float) or f"{value:.4f}" in page


def test_the_command_writes_beside_the_results_or_where_asked(tmp_path: Path) -> None:
    file = write_run(tmp_path / "m", {"t": [1.0]})
    done = CliRunner().invoke(report_command, [str(tmp_path)])
    assert done.output.strip() == str(report_file(file))
    assert report_file(file).name == f"report_{file.stem.removeprefix('results_')}.html"
    other = tmp_path / "deep" / "page.html"
    assert CliRunner().invoke(report_command, [str(file), "--output", str(other)]).exit_code == 0
    assert other.read_bytes().startswith(b"<!doctype html>")
    with pytest.raises(FileFormatError, match="there is no run"):
        CliRunner().invoke(report_command, [str(tmp_path / "none")], catch_exceptions=False)
    with pytest.raises(OutputError, match="cannot write"):
        write_report(file, output=file / "page.html")


def test_a_report_that_fails_is_a_remark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_run(tmp_path, {"t": [1.0]})
    next(tmp_path.glob("samples_*")).write_text("{")
    assert report_beside(file) is None
    assert "no report was written (FileFormatError" in capsys.readouterr().err


def test_vendored_files_are_the_ones_noted() -> None:
    noted = re.findall(r"\| (\S+) \| dist/ \| `(\w+)` \|", (ASSETS / "README.md").read_text())
    assert [hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() for name, _ in noted] == [
        found for _, found in noted
    ]
    assert len(noted) == 2


def test_tasks_of_a_group_without_a_score_stand_at_the_top(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"first": [1, 0], "second": [1, 1]}, group="both")
    document = json.loads(file.read_text())
    results, key = document["results"], "exact_match,get-answer"
    document["group_subtasks"]["all"] = ["both"]
    results["all"] = {"alias": "all", " ": " "}

    def shown() -> tuple[list[str], list[str]]:
        file.write_text(json.dumps(document))
        run = outline(file, read_results(file))
        return [score.task for score in run.main_scores], [part.name for part in run.parts]

    assert shown() == (["both"], ["both", "all"])
    results["all"][key] = 0.75
    assert shown() == (["all"], ["both", "all"])
    del results["all"][key], results["both"][key]
    assert shown() == (["first", "second"], [])


def test_templates_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr("assay.reports.templates.cache_from_source", lambda _: str(tmp_path / "html.pyc"))
    file = write_run(tmp_path / "run", {"one": [1.0, 0.0]})
    first = write_report(file).read_bytes()
    monkeypatch.delattr("jinja2.Environment._generate")
    assert write_report(file).read_bytes() == first


def test_a_report_needs_no_folder_for_compiled_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(
        "assay.reports.templates.cache_from_source", lambda _: str(tmp_path / "no" / "folder" / "html.pyc")
    )
    file = write_run(tmp_path / "run", {"one": [1.0, 0.0]})
    assert write_report(file).exists()
    assert not (tmp_path / "no").exists()
