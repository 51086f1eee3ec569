"""Where triage is asked for and kept, what it reads, and detectors on facts written by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from assay import diagnosis
from assay.diagnosis import Cause, Triage
from assay.diagnosis.alterations import altered
from assay.diagnosis.contents import degenerate, not_extracted, not_read
from assay.diagnosis.decline import chance_level
from assay.diagnosis.endings import truncated, without_content
from assay.diagnosis.evidence import Baseline, Evidence, Twin
from assay.diagnosis.extraction import Where
from assay.diagnosis.facts import SampleFacts
from assay.diagnosis.findings import LossReference
from assay.diagnosis.remark import triage_remark
from assay.diagnosis.server import template_markers
from assay.diagnosis.slices import slices
from assay.diagnosis.texts import Sign
from assay.errors import FileFormatError
from assay.evaluation import Evaluation
from assay.gate.run import GateReport, ModelOutcome
from assay.reports.gate import gate_markdown, gate_text
from assay.reports.junit import junit_xml
from assay.results.check_results import CheckResult, Verdict
from assay.results.document import AssayPart, ResultsDocument
from assay.runs.files import read_run
from assay.runs.saving import save_baseline
from assay.types import Check, Outcome
from tests.diagnosis.runs import KEY, TASKS, run
from tests.diagnosis.simulated import SimulatedModel
from tests.result_files import write_run
from tests.servers.scripted import ScriptedServer

BOXED = SimulatedModel(form="boxed")

UNKNOWN = ResultsDocument(results={})
"""Of a run of which nothing is known but its samples."""


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return run(tmp_path_factory.mktemp("boxed"), BOXED, checks=(Check(task="sums", metric=KEY, min=0.5),))


def test_a_failed_run_keeps_its_triage(boxed: Evaluation) -> None:
    assert boxed.triage is not None
    assert boxed.triage == diagnosis.triage(boxed.results_file)
    kept = json.loads(boxed.results_file.read_text())["assay"]["triage"]
    assert kept == json.loads(json.dumps(boxed.results["assay"]["triage"]))
    assert kept["headline"].startswith("most probable cause: right answers are not extracted: ")
    assert kept["findings"][0]["cause"] == "extraction_missed"
    assert kept["unmet_checks"] == 1


def test_a_run_that_passes_its_checks_is_not_explained(tmp_path: Path) -> None:
    evaluation = run(tmp_path, SimulatedModel(), checks=(Check(task="sums", metric=KEY, min=0.4),))
    assert evaluation.triage is None
    assert "triage" not in evaluation.results["assay"]


def test_a_fault_that_is_certain_is_told_where_every_check_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {"chat_template": {"seen": "no", "evidence": "7 prompt tokens in chat, 7 of the bare text"}}

    async def joins_turns(*_: Any) -> dict[str, Any]:
        return {"url": "http://x", "findings": seen}

    monkeypatch.setattr("assay.evaluation.flow._probe_server", joins_turns)
    evaluation = run(tmp_path, SimulatedModel(), checks=(Check(task="sums", metric=KEY, min=0.4),), probe=True)
    assert [check.verdict for check in evaluation.checks] == [Verdict.PASS]
    assert evaluation.triage is not None
    assert [finding.cause for finding in evaluation.triage.findings] == [Cause.CHAT_TEMPLATE_MISSING]
    words = (
        "every check passes, and yet: the model's chat template is not applied: "
        "the probe saw: 7 prompt tokens in chat, 7 of the bare text"
    )
    assert evaluation.triage.headline == words
    assert words in (triage_remark(evaluation.triage) or "")
    assert evaluation.results["assay"]["triage"]["headline"] == words


def test_a_fault_is_told_where_a_run_is_no_worse_than_its_baseline(tmp_path: Path) -> None:
    before = run(tmp_path / "before", SimulatedModel())
    check = Check(task="sums", metric=KEY, baseline=str(before.results_file), margin=0.1)
    after = run(tmp_path / "after", SimulatedModel(extra_tokens=1), checks=(check,))
    assert after.checks[0].verdict is Verdict.PASS
    assert after.triage is not None
    assert "the BOS token is doubled" in after.triage.headline


def test_an_explanation_that_fails_costs_no_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("assay.diagnosis.run.triage_samples", fail)
    evaluation = run(tmp_path, SimulatedModel())
    assert evaluation.triage is None
    assert evaluation.results_file.is_file()
    assert "could not be explained" in caplog.text


def test_the_baseline_of_the_runs_own_checks_is_taken(tmp_path: Path) -> None:
    before = run(tmp_path / "before", SimulatedModel())
    check = Check(task="sums", metric=KEY, baseline=str(before.results_file), margin=0.02, alpha=0.05)
    after = run(tmp_path / "after", SimulatedModel(accuracy=0.55, extra_tokens=1), checks=(check,))
    assert after.triage is not None
    assert after.triage.baseline == str(before.results_file)
    assert after.triage.causes[0].cause is Cause.BOS_DOUBLED


def test_a_baseline_of_another_task_than_the_one_that_failed_is_left_alone(tmp_path: Path) -> None:
    before = run(tmp_path / "before", SimulatedModel())
    after = run(tmp_path / "after", SimulatedModel(accuracy=0.4))
    document = json.loads(after.results_file.read_text())
    document["assay"]["checks"] = [
        {"task": "sums", "metric": KEY, "min": 0.9, "verdict": "fail", "reason": "low"},
        {
            "task": "walks",
            "metric": KEY,
            "baseline": str(before.results_file),
            "margin": 0.02,
            "verdict": "pass",
            "reason": "",
        },
    ]
    after.results_file.write_text(json.dumps(document))
    assert diagnosis.triage(after.results_file).baseline is None
    document["assay"]["checks"][1]["task"] = "sums"
    after.results_file.write_text(json.dumps(document))
    assert diagnosis.triage(after.results_file).baseline == str(before.results_file)


def test_a_baseline_file_knows_scores_alone(boxed: Evaluation, tmp_path: Path) -> None:
    save_baseline(read_run(run(tmp_path, SimulatedModel()).results_file), tmp_path / "baseline.json")
    triage = diagnosis.triage(boxed.results_file, tmp_path / "baseline.json")
    assert triage.causes[0].cause is Cause.EXTRACTION_MISSED
    assert triage.baseline_score == pytest.approx(0.68, abs=0.05)


def test_what_the_probe_saw_is_taken_into_account(tmp_path: Path) -> None:
    file = run(tmp_path, SimulatedModel(accuracy=0.4)).results_file
    document = json.loads(file.read_text())
    seen = {"chat_template": {"seen": "yes"}, "bos_doubled": {"seen": "yes", "evidence": "token 1 twice"}}
    document["assay"]["probe"] = {"url": "http://x", "findings": seen}
    file.write_text(json.dumps(document))
    assert (
        diagnosis.triage(file).headline == "most probable cause: the BOS token is doubled: the probe saw: token 1 twice"
    )
    seen["chat_template"] = {"seen": "no", "evidence": "7 prompt tokens in chat, 7 of the bare text"}
    seen["bos_doubled"] = {"seen": "no"}
    file.write_text(json.dumps(document))
    assert diagnosis.triage(file).causes[0].cause is Cause.CHAT_TEMPLATE_MISSING


def test_runs_of_lm_eval_are_read(tmp_path: Path) -> None:
    before = write_run(tmp_path / "before", {"a": [1, 1, 1, 0] * 30})
    after = write_run(tmp_path / "after", {"a": [1, 0, 1, 0] * 30})
    triage = diagnosis.triage(tmp_path / "after", before)
    assert triage.run == str(after)
    assert triage.causes[0].cause is Cause.ANSWERS_WORSE
    assert "0.750 -> 0.500 on 120 documents; 30 lost, 0 gained" in triage.headline
    changed = write_run(tmp_path / "changed", {"a": [1, 0, 1, 0] * 30}, prompt="Think. ", version=2.0)
    causes = {finding.cause for finding in diagnosis.triage(changed, before).causes}
    assert causes == {Cause.PROMPTS_CHANGED, Cause.TASK_CHANGED}
    other = write_run(tmp_path / "other", {"b": [1]})
    with pytest.raises(FileFormatError, match="none of the tasks"):
        diagnosis.triage(after, other)


def test_a_harness_that_scores_otherwise_is_found_by_scoring_the_baseline_again(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    shutil.copytree(TASKS, tasks)
    rule = "\n\ndef score(doc, said):\n    return {'exact_match': int(said[0] == doc['answer'].split('#### ')[1]%s)}\n"
    rows = (tasks / "rows.py").read_text()
    settings = (tasks / "sums.yaml").read_text()
    (tasks / "sums.yaml").write_text(f"{settings}process_results: !function rows.score\n")
    (tasks / "rows.py").write_text(rows + rule % "")
    options = {"include_path": str(tasks)}
    before = run(tmp_path / "before", SimulatedModel(), options=options)
    (tasks / "rows.py").write_text(rows + rule % " and int(said[0]) % 3 > 0")
    after = run(tmp_path / "after", SimulatedModel(), options=options)
    document = json.loads(before.results_file.read_text())
    document["assay"]["provenance"]["versions"]["assay"] = "0.0.1"
    before.results_file.write_text(json.dumps(document))
    triage = diagnosis.triage(after.results_file, before.results_file)
    assert triage.causes[0].cause is Cause.HARNESS_CHANGED, triage.headline
    assert triage.causes[0].score_repaired == pytest.approx(before.scores[0].value)
    unscored = diagnosis.triage(after.results_file, before.results_file, score_again=False)
    assert unscored.causes[0].cause is Cause.EXTRACTION_MISSED


def test_ten_samples_are_too_few_to_blame_anything(tmp_path: Path) -> None:
    evaluation = run(tmp_path, replace(BOXED, form="hashes", odd_form=0.1), options={"limit": 10})
    assert diagnosis.triage(evaluation.results_file).headline == "no harness cause found"


def assay(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "assay", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=os.environ, check=False)


def test_the_command(boxed: Evaluation, tmp_path: Path) -> None:
    shown = assay("triage", boxed.results_file, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    first, subject, *_ = shown.stdout.splitlines()
    assert boxed.triage is not None
    assert first == boxed.triage.headline
    assert subject.startswith("240 samples, score 0.0000 (exact_match,strict-match)")
    assert "cause   right answers are not extracted (certain)" in shown.stdout
    assert "-> score by a filter" in shown.stdout
    document = json.loads(assay("triage", boxed.results_file, "--json", cwd=tmp_path).stdout)
    assert document["run"] == str(boxed.results_file)
    missing = assay("triage", tmp_path / "nothing.json", cwd=tmp_path)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("assay: there is no run ")


def test_a_failed_run_says_why_in_one_line(tmp_path: Path) -> None:
    with ScriptedServer(answer=BOXED, models=["served"]) as server:
        where: list[str | Path] = [
            "--base-url",
            server.url,
            "--model",
            "served",
            "--include-path",
            TASKS,
            "--limit",
            "60",
        ]
        ran = assay("run", "sums", *where, "--min", "exact_match=0.5", cwd=tmp_path)
    assert ran.returncode == 1
    (said,) = [line for line in ran.stderr.splitlines() if line.startswith("triage: ")]
    assert said.startswith("triage: most probable cause: right answers are not extracted: ")
    results = next((tmp_path / "results" / "served").glob("results_*.json")).relative_to(tmp_path)
    assert said.endswith(f"; more: assay triage {results}")


def test_a_gates_reports_say_why(boxed: Evaluation) -> None:
    assert boxed.triage is not None
    why = triage_remark(boxed.triage)
    outcome = ModelOutcome(name="main", model="served", base_url="http://x", checks=boxed.checks, triage=why)
    report = GateReport(policy="gate.toml", verdict=Verdict.FAIL, models=(outcome,))
    console = Console(width=2000)
    with console.capture() as captured:
        console.print(gate_text(report))
    for shown in (captured.get(), gate_markdown(report), junit_xml(report).decode()):
        assert "most probable cause: right answers are not extracted: " in shown


def facts(doc_id: int, score: float, **more: Any) -> SampleFacts:
    return SampleFacts(task=more.pop("task", "t"), doc_id=doc_id, score=score, outcome=Outcome.ANSWERED, **more)


def against(samples: list[SampleFacts], before: Callable[[SampleFacts], float]) -> Evidence:
    twins = {sample.place: Twin(score=before(sample)) for sample in samples}
    return Evidence(samples, UNKNOWN, Baseline(source="b", twins=twins))


def test_a_stretch_of_time_that_carries_the_loss() -> None:
    samples = [
        facts(number, float(number % 4 > 0 and not 100 <= number < 140), time=1e9 + number) for number in range(200)
    ]
    (found,) = slices(Evidence(samples, UNKNOWN, None))
    assert found.finding.cause is Cause.ONE_TIME_SPAN
    assert found.finding.is_cause
    assert found.finding.evidence.startswith("from 01:48:20 to 01:48:59 UTC: 40 of 200 (20%) samples score 0.00")


def test_a_task_and_a_length_that_carry_the_loss() -> None:
    def score(number: int, bad: bool) -> float:
        return float(number % 4 > (1 if bad else 0) and not (bad and number % 3))

    by_task = [
        facts(number, score(number, task == "c"), task=task, prompt_characters=100 + number)
        for task in "abcd"
        for number in range(60)
    ]
    (found,) = slices(against(by_task, lambda sample: float(sample.doc_id % 4 > 0)))
    assert (found.finding.cause, found.finding.is_cause) == (Cause.ONE_TASK, True)
    assert found.finding.evidence.startswith("c: 60 of 240 (25%) samples")
    by_length = [facts(number, score(number, number >= 180), prompt_characters=number) for number in range(240)]
    found, *_ = slices(against(by_length, lambda sample: float(sample.doc_id % 4 > 0)))
    assert (found.finding.cause, found.finding.is_cause) == (Cause.ONE_LENGTH_BAND, True)
    assert "prompts of 180 to 239 characters" in found.finding.evidence


def test_hard_tasks_are_not_blamed_without_a_baseline() -> None:
    samples = [
        facts(number, float(task == "a"), task=task, prompt_characters=number) for task in "ab" for number in range(100)
    ]
    assert list(slices(Evidence(samples, UNKNOWN, None))) == []


def test_texts_that_run_on_and_reasoning_that_leaks() -> None:
    wrong: dict[str, Any] = {"is_generated": True, "missed": Where.BEFORE_NEXT_QUESTION}
    samples = [facts(number, float(number % 3 > 0), **(wrong if number % 3 == 0 else {})) for number in range(90)]
    (found,) = not_extracted(Evidence([*samples, facts(90, 1.0, is_generated=True)], UNKNOWN, None))
    assert (found.finding.cause, found.finding.is_cause) == (Cause.RUN_ON, True)
    assert found.finding.samples == 30
    assert found.finding.score_repaired == pytest.approx(1.0)
    leaking = {"is_generated": True, "altered": ("reasoning",)}
    samples = [facts(number, float(number % 3 > 0), **(leaking if number % 3 == 0 else {})) for number in range(90)]
    (found,) = altered(Evidence(samples, UNKNOWN, None))
    assert (found.finding.cause, found.finding.is_cause) == (Cause.REASONING_LEAKED, True)


@pytest.mark.parametrize(("sign", "is_found"), [(None, True), (Sign.TEMPLATE_MARKERS, False), (Sign.REPETITIVE, False)])
def test_an_answer_that_had_not_come_to_its_end_is_not_cut_off(sign: Sign | None, is_found: bool) -> None:
    """Another model's chat template on a llama.cpp server: all answers ran into the next turn, and into the limit."""
    signs = frozenset({sign} if sign else ())
    samples = [
        SampleFacts(task="t", doc_id=number, score=0.0, outcome=Outcome.TRUNCATED, signs=signs, is_generated=True)
        for number in range(99)
    ]
    found = list(truncated(Evidence([*samples, facts(99, 0.0)], UNKNOWN, None)))
    assert bool(found) is is_found


def test_guessing_is_a_cause_only_where_more_was_known_to_be_possible() -> None:
    samples = [facts(number, float(number % 4 == 0), choices=4) for number in range(100)]
    (alone,) = chance_level(Evidence(samples, UNKNOWN, None))
    assert not alone.finding.is_cause
    assert alone.finding.evidence == "25 of 100 (25%) right where guessing gives 25%"
    (beside,) = chance_level(against(samples, lambda sample: float(sample.doc_id % 4 < 3)))
    assert beside.finding.is_cause
    better = [facts(number, float(number % 4 < 2), choices=4) for number in range(100)]
    assert list(chance_level(Evidence(better, UNKNOWN, None))) == []


def test_fewer_right_answers_than_guessing_gives_point_at_reading_them() -> None:
    samples = [facts(number, float(number < 4), choices=4) for number in range(100)]
    (found,) = chance_level(against(samples, lambda sample: float(sample.doc_id % 4 < 3)))
    assert found.finding.cause is Cause.BELOW_CHANCE
    assert found.finding.is_cause
    assert "misread" in found.finding.advice
    assert "weights" not in found.finding.advice


def unread(doc_id: int, **more: Any) -> SampleFacts:
    return SampleFacts(
        task="t", doc_id=doc_id, score=0.0, outcome=Outcome.UNEXTRACTED, is_generated=True, excerpt="\x1b18!", **more
    )


def test_answers_that_the_filter_takes_nothing_from_are_shown_without_a_baseline() -> None:
    right = [facts(number, 1.0, is_generated=True) for number in range(3)]
    (found,) = not_read(Evidence([*right, *map(unread, range(3, 100))], UNKNOWN, None))
    assert found.finding.is_cause
    assert found.finding.evidence.startswith("97 of 100 (97%) answers end by themselves and nothing is extracted")
    assert found.finding.evidence.count(r"'\x1b18!'") == 3
    assert [example.shown for example in found.finding.examples] == ["\x1b18!"] * 3


def test_a_limit_of_the_servers_own_is_not_to_be_raised_in_the_request() -> None:
    def cut(doc_id: int, tokens: int) -> SampleFacts:
        return SampleFacts(
            task="t",
            doc_id=doc_id,
            score=0.0,
            outcome=Outcome.TRUNCATED,
            is_generated=True,
            max_tokens=256,
            completion_tokens=tokens,
        )

    right = [facts(number, 1.0, is_generated=True) for number in range(20)]
    (found,) = truncated(Evidence([*right, *(cut(number, 46) for number in range(20, 60))], UNKNOWN, None))
    assert "cut off at 46 tokens" in found.finding.evidence
    assert found.finding.advice.startswith("the server cuts off after 46 tokens (median), although 256 were asked for")
    assert "raise max_gen_toks" not in found.finding.advice
    (found,) = truncated(Evidence([*right, *(cut(number, 256) for number in range(20, 60))], UNKNOWN, None))
    assert found.finding.advice.startswith("raise max_gen_toks")


@pytest.mark.parametrize("reason", ["content_filter", "tool_calls"])
def test_empty_answers_are_blamed_on_what_ended_them_rather_than_on_a_stop_string(reason: str) -> None:
    def nothing(doc_id: int) -> SampleFacts:
        return SampleFacts(
            task="t",
            doc_id=doc_id,
            score=0.0,
            outcome=Outcome.EMPTY,
            is_generated=True,
            finish_reason=reason,
            completion_tokens=1,
            stops=("Q:",),
        )

    right = [facts(number, 1.0, is_generated=True) for number in range(20)]
    (found,) = without_content(Evidence([*right, *map(nothing, range(20, 60))], UNKNOWN, None))
    assert found.finding.cause is Cause.EMPTY
    assert f"finish_reason: 40 {reason}" in found.finding.evidence


def test_some_unread_answers_are_normal_and_known_forms_have_causes_of_their_own() -> None:
    right = [facts(number, 1.0, is_generated=True) for number in range(60)]
    assert not list(not_read(Evidence([*right, *map(unread, range(60, 100))], UNKNOWN, None)))
    boxed = [unread(number, missed=Where.BOXED) for number in range(60, 200)]
    assert not list(not_read(Evidence([*right, *boxed], UNKNOWN, None)))


def test_unread_answers_are_not_called_a_worse_model(tmp_path: Path) -> None:
    before = run(tmp_path / "before", SimulatedModel())

    def spells(body: dict[str, Any]) -> dict[str, Any]:
        reply = SimulatedModel()(body)
        message = reply["choices"][0]["message"]
        message["content"] = re.sub(r"\d", lambda digit: "abcdefghij"[int(digit[0])], message["content"])
        return reply

    after = run(tmp_path / "after", spells)
    found = diagnosis.triage(after.results_file, before.results_file)
    assert found.causes[0].cause is Cause.NOT_READ
    assert diagnosis.triage(after.results_file).causes[0].cause is Cause.NOT_READ
    assert "nothing is extracted" in found.headline


def test_what_the_loss_is_measured_against() -> None:
    samples = [facts(number, float(number % 2)) for number in range(100)]
    assert Evidence(samples, UNKNOWN, None).loss.against is LossReference.FULL
    check = CheckResult(task="t", metric=KEY, min=0.7, verdict=Verdict.FAIL, reason="too low")
    judged = ResultsDocument(results={}, assay=AssayPart(checks=(check,)))
    missed = Evidence(samples, judged, None, {KEY}).loss
    assert missed.against is LossReference.CHECK
    assert missed.size == pytest.approx(0.2)
    same = against(samples, lambda sample: float(sample.doc_id % 2)).loss
    assert (same.against, same.is_real) == (LossReference.BASELINE, False)
    worse = against(samples, lambda _: 1.0).loss
    assert worse.against is LossReference.BASELINE
    assert worse.size == pytest.approx(0.5)


def test_what_right_answers_show_as_often_is_not_blamed() -> None:
    """Signs are looked for in right answers, too: else whatever all answers show would explain all wrong ones."""
    detectors: dict[Sign, Any] = {
        Sign.REASONING_TAGS: altered,
        Sign.TEMPLATE_MARKERS: template_markers,
        **dict.fromkeys((Sign.REPETITIVE, Sign.GIBBERISH, Sign.WRONG_LANGUAGE, Sign.REFUSED), degenerate),
    }
    for sign, detector in detectors.items():
        shown: dict[str, Any] = {"is_generated": True, "signs": frozenset({sign})}
        shown |= {"altered": ("reasoning",)} if detector is altered else {}
        everywhere = [facts(number, float(number % 3 > 0), **shown) for number in range(90)]
        elsewhere = [facts(number, float(number % 2), is_generated=True) for number in range(90, 180)]
        harmful = [facts(number, float(number % 9 == 0), **shown) for number in range(90)]
        for samples, is_cause in (
            (everywhere, False),
            (everywhere + elsewhere, False),
            (harmful, True),
            (harmful + elsewhere, True),
        ):
            (found,) = detector(Evidence(samples, UNKNOWN, None))
            assert found.finding.is_cause is is_cause, sign
        (remark,) = detector(against(everywhere, lambda _: 1.0))
        assert not remark.finding.is_cause


def test_marks_of_a_template_are_never_right_in_a_chat() -> None:
    marked: dict[str, Any] = {"is_generated": True, "signs": frozenset({Sign.TEMPLATE_MARKERS}), "messages": 2}
    (found,) = template_markers(
        Evidence([facts(number, float(number % 3 > 0), **marked) for number in range(90)], UNKNOWN, None)
    )
    assert found.finding.is_cause
    assert found.finding.samples == 30


def answer_nothing(_: dict[str, Any]) -> dict[str, Any]:
    return {"choices": []}


def test_a_run_in_which_everything_failed_is_blamed_on_the_server(tmp_path: Path) -> None:
    few = {"limit": 6}
    baseline = run(tmp_path / "baseline", SimulatedModel(), options=few)
    for place, check in enumerate((None, {"min": 0.5}, {"baseline": str(baseline.results_file), "margin": 0.1})):
        checks = () if check is None else (Check(task="sums", metric=KEY, **check),)
        failed = run(tmp_path / str(place), answer_nothing, checks=checks, options=few)
        assert failed.triage is not None
        assert failed.triage.headline.startswith("most probable cause: the server failed: 6 of 6 (100%) samples ")
    assert diagnosis.triage(failed.results_file, baseline.results_file).causes[0].cause is Cause.SERVER_FAILURES


def test_failures_of_tasks_without_a_score_are_counted_among_all_samples(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"lost": [1.0] * 5}, metric="perplexity", higher_is_better=False, failed={"lost": [8]})
    found = diagnosis.triage(file)
    assert found.headline.startswith("most probable cause: the server failed: 1 of 6 (17%) samples ")
    assert found.metrics == {}
    assert found.score is None
    calm = write_run(tmp_path / "calm", {"lost": [1.0] * 5}, metric="perplexity", higher_is_better=False)
    assert diagnosis.triage(calm).headline == "nothing to explain: no sample has a score of which more is better"
    with pytest.raises(FileFormatError, match=r"none of the tasks of .* \(lost\)"):
        diagnosis.triage(file, write_run(tmp_path / "other", {"found": [1.0] * 5}))


def test_nothing_measured_is_no_cause() -> None:
    assert Evidence([], UNKNOWN, None).score is None
    assert not Evidence([], UNKNOWN, None).loss.is_real


def test_aggregation_leaves_sigterm_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children of lm-eval's bootstrap must die of it, and would inherit a handler."""
    import lm_eval.evaluator_utils

    seen: list[Any] = []
    aggregated = lm_eval.evaluator_utils._collect_results

    def look(*given: Any) -> Any:
        seen.append(signal.getsignal(signal.SIGTERM))
        return aggregated(*given)

    monkeypatch.setattr(lm_eval.evaluator_utils, "_collect_results", look)
    before = signal.getsignal(signal.SIGTERM)
    run(tmp_path, SimulatedModel(), options={"limit": 2})
    assert seen == [signal.SIG_DFL]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(("limit", "words", "most"), [(1, "1 token;", 16), (256, "256 tokens;", 1024)])
def test_where_no_answer_was_complete_a_limit_is_advised_that_holds_one(limit: int, words: str, most: int) -> None:
    samples = [
        msgspec.structs.replace(
            facts(number, 0.0), outcome=Outcome.TRUNCATED, is_generated=True, max_tokens=limit, completion_tokens=limit
        )
        for number in range(10)
    ]
    [found] = truncated(Evidence(samples, UNKNOWN, None))
    assert f"cut off at {words}" in found.finding.evidence
    assert f"no answer was complete; try {most} or more" in str(found.finding.advice)


def marked(folder: Path, metric: str, right: float) -> Triage:
    """The triage of a run that failed a check on its errors, and has another metric of which more is better."""
    file = write_run(folder, {"sums": [0.0] * 20 + [right] * 20}, metric=metric)
    document = json.loads(file.read_text())
    document["results"]["sums"]["errors,none"] = 0.7
    document["higher_is_better"]["sums"]["errors"] = False
    document["assay"] = {
        "checks": [{"task": "sums", "metric": "errors,none", "max": 0.1, "verdict": "fail", "reason": "high"}]
    }
    file.write_text(json.dumps(document))
    return diagnosis.triage(file)


def test_no_gain_is_told_in_another_metric_than_the_one_demanded(tmp_path: Path) -> None:
    """Of errors less is better: what repairs would do to another score says nothing about the check."""
    share = marked(tmp_path / "share", "f1", 0.8)
    assert share.metrics == {"sums": "f1,get-answer"}
    assert share.headline.endswith(
        "judged by f1,get-answer: triage needs a score of which more is better, unlike errors,none"
    )
    marks = marked(tmp_path / "marks", "marks", 2.8)
    assert marks.metrics == {}
    assert marks.headline == (
        "no harness cause found; scores were not looked at: triage needs a score of which more is better, unlike "
        "errors,none"
    )
    for triage in (share, marks):
        assert "repaired" not in triage.headline
        assert "short of" not in triage.headline
