"""Whole runs that may stop early, against a scripted server."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from assay.cli.run import run as run_command
from assay.errors import BaselineMismatchError, SpecificationError
from assay.evaluation import Evaluation, evaluate
from assay.reports.html import write_report
from assay.results.check_results import Verdict
from assay.results.reading import read_results
from assay.runs.files import read_run
from assay.runs.saving import save_baseline
from assay.types import Budget, Check, EarlyStopping, ModelSpec, Outcome, Specification, TaskOptions
from tests.gate.conftest import KEY, TASKS, right, wrong
from tests.servers.scripted import NEVER, Fault, ScriptedServer


def specification(server: ScriptedServer, output_dir: Path, *checks: Check, **options: Any) -> Specification:
    stopping = options.pop("stopping", EarlyStopping(order_seed=3))
    return Specification(
        tasks=options.pop("tasks", ("counting",)),
        model=ModelSpec(base_url=server.url, model="scripted", concurrency=options.pop("concurrency", 4)),
        options=TaskOptions(include_path=str(TASKS), **options),
        checks=checks,
        early_stopping=stopping,
        output_dir=str(output_dir),
    )


def minimum(value: float, task: str = "counting") -> Check:
    return Check(metric=KEY, task=task, min=value)


def test_a_clear_case_stops_early_and_says_so(server: ScriptedServer, tmp_path: Path) -> None:
    server.answer = wrong
    run = evaluate(specification(server, tmp_path, minimum(0.8)))
    (result,) = run.checks
    assert result.verdict is Verdict.FAIL
    assert result.n < 15
    assert run.stopped_early is not None
    assert result.n == run.stopped_early.documents <= run.stopped_early.asked == server.count <= result.n + 4
    document = json.loads(run.results_file.read_text())
    read = read_results(run.results_file).as_json()
    assert json.loads(json.dumps(read)) == document, "nothing that is written is lost in reading"
    assert document["assay"]["early_stopping"]["population"] == 60
    assert document["results"]["counting"]["alias"] == f"counting (stopped early: {result.n} of 60)"
    assert document["n-samples"]["counting"] == {"original": 60, "effective": result.n}
    assert run.scores[0].interval is None  # it would hold only for a number of documents fixed beforehand
    assert result.interval is not None
    assert result.interval.method == "confidence sequence"
    (evidence,) = document["assay"]["evidence"]
    assert evidence["decided_after"] == result.n == evidence["course"]["seen"][-1]
    assert evidence["course"]["threshold"] == 0.8
    assert read_run(run.results_file).stopped_early
    with pytest.raises(SpecificationError, match="stopped early"):
        save_baseline(run.results_file, tmp_path / "b.json")


def test_a_run_to_the_end_is_a_full_run(server: ScriptedServer, tmp_path: Path) -> None:
    server.answer = lambda body: right(body) if len(right(body)) % 2 else wrong(body)
    full = evaluate(
        msgspec.structs.replace(specification(server, tmp_path / "full", minimum(0.1)), early_stopping=None)
    )
    exact = full.scores[0].value
    assert exact is not None
    assert 0.1 < exact < 0.9
    close = evaluate(specification(server, tmp_path / "close", minimum(exact)))
    assert close.stopped_early is None
    assert close.checks[0].verdict is Verdict.PASS
    assert close.results["results"] == full.results["results"]
    assert close.results["task_hashes"] == full.results["task_hashes"]
    stamps = [run.results_file.stem.removeprefix("results_") for run in (full, close)]
    lines = [
        run.results_file.with_name(f"samples_counting_{stamp}.jsonl").read_text()
        for run, stamp in zip((full, close), stamps, strict=True)
    ]
    assert lines[0] == lines[1]


def documents(run: Evaluation) -> tuple[list[Any], dict[str, str]]:
    """All that a run says of documents and verdicts."""
    stamp = run.results_file.stem.removeprefix("results_")
    files = run.results_file.parent.glob(f"samples_*_{stamp}.jsonl")
    results = [run.results["results"], run.results["n-samples"], msgspec.to_builtins(run.checks)]
    return results, {file.name.split("_2")[0]: file.read_text() for file in files}


def test_timing_and_concurrency_change_no_result(server: ScriptedServer, tmp_path: Path) -> None:
    server.answer = lambda body: right(body) if random.Random(right(body)).random() < 0.75 else wrong(body)
    checks = (minimum(0.5), minimum(0.9, "drawing"))
    tasks = ("counting", "drawing")
    alone = evaluate(specification(server, tmp_path / "alone", *checks, tasks=tasks, concurrency=1))
    assert alone.stopped_early is not None
    server.latency = lambda body: random.Random(json.dumps(body)).random() * 0.05
    together = evaluate(specification(server, tmp_path / "together", *checks, tasks=tasks, concurrency=16))
    assert documents(alone) == documents(together)


def test_a_group_is_judged_by_its_aggregate(server: ScriptedServer, tmp_path: Path) -> None:
    run = evaluate(specification(server, tmp_path, minimum(0.6, "both"), tasks=("both",)))
    (result,) = run.checks
    assert result.verdict is Verdict.PASS
    assert result.population == 120
    assert run.stopped_early is not None
    assert set(run.stopped_early.tasks) == {"counting", "naming"}
    assert "stopped early" in run.results["results"]["both"]["alias"]


def test_how_a_group_is_averaged_is_kept_where_its_values_do_not_show_it(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """A server that answers everything right has one score, however it is averaged."""
    run = evaluate(specification(server, tmp_path, tasks=("both",), stopping=None))
    recorded = read_run(run.results_file)
    assert recorded.groups["both"].weighted_by_size == {KEY: False}
    save_baseline(recorded, tmp_path / "b.json")
    assert read_run(tmp_path / "b.json").groups["both"].weighted_by_size == {KEY: False}


def test_a_baseline_is_matched_by_document_and_prompt(server: ScriptedServer, tmp_path: Path) -> None:
    full = msgspec.structs.replace(specification(server, tmp_path / "full"), early_stopping=None)
    save_baseline(evaluate(full).results_file, tmp_path / "b.json")
    against = Check(metric=KEY, task="counting", baseline=str(tmp_path / "b.json"), margin=0.2)
    healthy = evaluate(specification(server, tmp_path / "healthy", against))
    assert healthy.checks[0].verdict is Verdict.PASS
    assert healthy.checks[0].difference == 0.0
    assert healthy.stopped_early is not None

    server.answer = wrong
    broken = evaluate(specification(server, tmp_path / "broken", against))
    assert broken.checks[0].verdict is Verdict.FAIL
    assert broken.checks[0].n < 20
    assert broken.checks[0].lost == broken.checks[0].n

    asked = server.count
    with pytest.raises(BaselineMismatchError, match=r"generation_kwargs.temperature: not set -> 2"):
        evaluate(specification(server, tmp_path / "hot", against, gen_kwargs={"temperature": 2}))
    assert server.count == asked
    other_prompts = evaluate(specification(server, tmp_path / "prompts", against, system_instruction="Be brief."))
    assert other_prompts.checks[0].verdict is Verdict.INVALID
    assert "prompts: that of document" in other_prompts.checks[0].reason
    assert server.count <= asked + 8

    allowed = msgspec.structs.replace(against, allow_mismatch=True)
    compared = evaluate(specification(server, tmp_path / "allowed", allowed, system_instruction="Be brief."))
    assert compared.checks[0].verdict is Verdict.FAIL
    assert compared.checks[0].n < 20
    assert "allowed: counting: prompts: that of document" in compared.checks[0].reason


def test_a_full_run_against_a_baseline(server: ScriptedServer, tmp_path: Path) -> None:
    full = msgspec.structs.replace(specification(server, tmp_path / "full"), early_stopping=None)
    baseline = evaluate(full).results_file
    server.answer = lambda body: right(body) if "41 +" not in body["messages"][-1]["content"] else wrong(body)
    against = Check(metric=KEY, task="counting", baseline=str(baseline), margin=0.02)
    run = evaluate(msgspec.structs.replace(full, checks=(against,), output_dir=str(tmp_path / "again")))
    (result,) = run.checks
    assert (result.verdict, result.lost, result.gained, result.n) == (Verdict.PASS, 1, 0, 60)
    assert result.difference == pytest.approx(-1 / 60)


def test_failed_documents_are_bounded(server: ScriptedServer, tmp_path: Path) -> None:
    server.faults = (Fault("http_400", fraction=0.5),)
    run = evaluate(specification(server, tmp_path, minimum(0.7)))
    (result,) = run.checks
    assert result.verdict is Verdict.INVALID
    assert result.failed > 15
    assert run.scores[0].outcomes[Outcome.FAILED] == result.failed
    server.faults = (Fault("http_400", fraction=0.05),)
    run = evaluate(specification(server, tmp_path / "few", minimum(0.5)))
    assert run.checks[0].verdict is Verdict.PASS


def test_the_budget_ends_it_inconclusively(server: ScriptedServer, tmp_path: Path) -> None:
    server.answer = lambda body: right(body) if len(right(body)) % 2 else wrong(body)
    budget = EarlyStopping(budget=Budget(documents=8), order_seed=3)
    run = evaluate(specification(server, tmp_path, minimum(0.5), stopping=budget))
    assert run.checks[0].verdict is Verdict.INCONCLUSIVE
    assert server.count == 8
    assert run.checks[0].more_needed


@pytest.mark.parametrize(
    ("answered", "budget", "verdict"),
    [
        (5, Budget(), Verdict.FAIL),
        (2, Budget(tokens=1), Verdict.INCONCLUSIVE),
        (2, Budget(minutes=0.01), Verdict.INCONCLUSIVE),
        (0, Budget(minutes=0.01), Verdict.INVALID),
    ],
    ids=["decided", "tokens", "minutes", "nothing"],
)
def test_requests_that_hang_are_not_waited_for_once_it_is_over(
    server: ScriptedServer, tmp_path: Path, answered: int, budget: Budget, verdict: Verdict
) -> None:
    server.answer = wrong
    server.latency = lambda body: NEVER if server.count > answered else 0.0
    stopping = EarlyStopping(order_seed=3, budget=budget)
    run = evaluate(specification(server, tmp_path, minimum(0.8), stopping=stopping))
    (result,) = run.checks
    assert result.verdict is verdict, result.reason
    assert result.n <= answered < server.count
    assert (result.n == 0) is ("no answer came in time to any of 60 documents" in result.reason)


@pytest.mark.parametrize("concurrency", [8, 64])
def test_a_request_that_hangs_for_a_decided_check_holds_no_other_check(
    server: ScriptedServer, tmp_path: Path, concurrency: int
) -> None:
    checks, tasks = (minimum(0.9), minimum(0.1, "drawing")), ("counting", "drawing")
    needed: set[str] = set()
    given_up: set[str] = set()

    def noted(body: dict[str, Any]) -> float:
        needed.add(json.dumps(body))
        return 0.0

    def hanging(body: dict[str, Any]) -> float:
        text = json.dumps(body)
        if "counting" not in text or text in needed:
            return 0.0
        given_up.add(text)
        return NEVER

    server.answer, server.latency = wrong, noted
    patient = evaluate(specification(server, tmp_path / "patient", *checks, tasks=tasks, concurrency=1))
    server.latency = hanging
    run = evaluate(specification(server, tmp_path / "hanging", *checks, tasks=tasks, concurrency=concurrency))
    assert given_up
    assert documents(run) == documents(patient)


def test_every_task_needs_a_check(server: ScriptedServer, tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match="add a check"):
        evaluate(specification(server, tmp_path))
    with pytest.raises(SpecificationError, match="no check looks at naming"):
        evaluate(specification(server, tmp_path, minimum(0.5), tasks=("counting", "naming")))
    assert server.count == 0


@pytest.mark.parametrize("stopping", [EarlyStopping(), None], ids=["early", "full"])
@pytest.mark.parametrize(
    ("check", "words"),
    [
        (Check(metric=KEY, task="counting", min=60), "min 60; it must lie between 0 and 1.*write 0.6 for 60 %"),
        (Check(metric=KEY, task="both", max=7.5), "max 7.5; it must lie between 0 and 1.*write 0.075 for 7.5 %"),
        (Check(metric=KEY, task="counting", min=-0.1), "min -0.1; it must lie between 0 and 1, as its scores do$"),
        (Check(metric=KEY, task="counting", baseline="b.json", margin=2), "margin 2; .*write 0.02 for 2 %"),
    ],
)
def test_demands_in_per_cent_are_refused_before_any_request(
    server: ScriptedServer, tmp_path: Path, check: Check, words: str, stopping: EarlyStopping | None
) -> None:
    with pytest.raises(SpecificationError, match=words):
        evaluate(specification(server, tmp_path, check, tasks=("both",), stopping=stopping))
    assert server.count == 0


def test_checks_share_alpha_in_python_as_on_the_command_line(server: ScriptedServer, tmp_path: Path) -> None:
    """By each verdict's interval: it holds with 1 - 2·alpha confidence."""
    checks = [minimum(0.8), minimum(0.7), minimum(0.6)]
    run = evaluate(specification(server, tmp_path / "python", *checks))
    intervals = [check.interval for check in run.checks if check.interval is not None]
    assert [interval.confidence for interval in intervals] == [pytest.approx(1 - 2 * 0.01 / 3)] * 3
    options = ["counting", "--base-url", server.url, "--model", "scripted", "--include-path", str(TASKS)]
    options += ["--stop-early", *(part for check in checks for part in ("--min", f"{KEY}={check.min}"))]
    done = CliRunner().invoke(
        run_command, [*options, "--output-dir", str(tmp_path / "shell"), "--json", "--no-probe"], standalone_mode=False
    )
    told = json.loads(done.stdout)["assay"]["checks"]
    assert [check["interval"]["confidence"] for check in told] == [interval.confidence for interval in intervals]


def test_the_alpha_that_is_shown_is_the_one_that_decided(server: ScriptedServer, tmp_path: Path) -> None:
    checks = [minimum(0.8), minimum(0.2)]
    for holm, shown in ((False, 0.005), (True, 0.01)):
        stopping = EarlyStopping(order_seed=3, holm=holm)
        run = evaluate(specification(server, tmp_path / str(holm), *checks, stopping=stopping))
        assert {check.verdict for check in run.checks} == {Verdict.PASS}
        assert shown in {check.alpha for check in run.checks}
        for check in run.checks:
            assert ("at alpha 0.01 by Holm's method" in check.reason) == (check.alpha == 0.01)
        told = [one["decided_together"] for one in run.results["assay"]["evidence"]]
        assert told == [check.alpha == 0.01 for check in run.checks]
        assert ("Holm's method decided before" in write_report(run.results_file).read_text()) == holm
    full = evaluate(specification(server, tmp_path / "full", *checks, stopping=None))
    assert [check.alpha for check in full.checks] == [None, None]


def test_a_killed_run_goes_on_in_its_own_order_to_the_same_verdict(server: ScriptedServer, tmp_path: Path) -> None:
    """Without a seed of its own: the order is drawn from the journal's name, which a resumed run keeps."""
    server.answer = lambda body: right(body) if random.Random(right(body)).random() < 0.7 else wrong(body)
    server.hold_after(8)
    command = [sys.executable, "-m", "assay", "run", "counting", "--base-url", server.url, "--model", "scripted"]
    command += ["--include-path", str(TASKS), "--output-dir", str(tmp_path), "--concurrency", "2"]
    command += ["--min", f"counting:{KEY}=0.45", "--stop-early", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(server.answered) < 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    before = len(server.answered)
    assert before == 8
    server.latency = 0.0
    resumed = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert "going on with" in resumed.stderr, resumed.stderr
    document = json.loads(resumed.stdout)
    bodies = [json.dumps(body) for body in server.answered]
    again = [body for body in bodies[before:] if body in bodies[:before]]
    assert len(again) <= 2  # at most what was in flight
    stopped = document["assay"]["early_stopping"]
    same_order = EarlyStopping(order_seed=stopped["order_seed"])
    alone = evaluate(specification(server, tmp_path / "alone", minimum(0.45), stopping=same_order))
    assert alone.stopped_early is not None
    assert stopped["documents"] == alone.stopped_early.documents
    assert document["assay"]["checks"] == json.loads(json.dumps(msgspec.to_builtins(alone.checks)))
    assert document["results"] == json.loads(json.dumps(alone.results["results"]))


def test_the_command_says_that_it_stopped(server: ScriptedServer, tmp_path: Path) -> None:
    options = ["counting", "--base-url", server.url, "--model", "scripted", "--include-path", str(TASKS)]
    options += ["--output-dir", str(tmp_path), "--min", f"{KEY}=0.5", "--stop-early", "--alpha", "0.05"]
    done = CliRunner().invoke(run_command, options, standalone_mode=False)
    assert done.return_value == 0
    assert re.search(r"stopped early: \d+ of 60 documents judged, \d+ asked, in random order", done.output)


def test_an_inconclusive_run_goes_on_with_a_larger_budget(server: ScriptedServer, tmp_path: Path) -> None:
    """In its own order, with the answers that it has."""
    server.answer = lambda body: right(body) if random.Random(right(body)).random() < 0.7 else wrong(body)
    small = specification(server, tmp_path, minimum(0.7), stopping=EarlyStopping(budget=Budget(documents=10)))
    first = evaluate(small)
    assert (first.checks[0].verdict, server.count) == (Verdict.INCONCLUSIVE, 10)
    larger = EarlyStopping(budget=Budget(documents=30))
    second = evaluate(msgspec.structs.replace(small, early_stopping=larger, retry_failed=True))
    assert second.checks[0].n > 10
    assert first.stopped_early is not None
    assert second.stopped_early is not None
    assert second.stopped_early.order_seed == first.stopped_early.order_seed
    assert server.count == second.stopped_early.asked
