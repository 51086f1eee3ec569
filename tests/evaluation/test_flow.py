"""Whole runs against a scripted server: interruption, failure, order, resumption."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from assay.errors import (
    ModelNotServedError,
    ServerUnreachableError,
    SpecificationError,
    TaskConfigError,
    UnknownMetricError,
    UnknownTaskError,
    UsageError,
)
from assay.evaluation import Evaluation, evaluate, evaluate_async
from assay.journal import check, find_journals, records
from assay.journal.records import ResponseRecord
from assay.progress import Progress
from assay.reports.html import write_report
from assay.results.check_results import Verdict
from assay.types import Answer, Check, FailedSample, FailureCause, ModelSpec, Outcome, Specification, TaskOptions
from tests.servers.scripted import Fault, ScriptedServer, reply_with

KEY = "exact_match,get-answer"
TASKS = Path(__file__).parents[1] / "evaluation_tasks"


def specification(
    server: ScriptedServer, output_dir: Path, *, checks: tuple[Check, ...] = (), **model: Any
) -> Specification:
    return Specification(
        tasks=("counting", "naming"),
        model=ModelSpec(base_url=server.url, model="scripted", **{"concurrency": 8, **model}),
        options=TaskOptions(include_path=str(TASKS)),
        checks=checks,
        output_dir=str(output_dir),
    )


def answer(body: dict[str, Any]) -> str:
    """Right for two questions in three, by the question alone."""
    question = body["messages"][-1]["content"]
    digits = [int(word) for word in question.split() if word.isdigit()]
    return f"The answer is {sum(digits)}" if sum(digits) % 3 else "I cannot say"


@pytest.fixture
def server() -> Any:
    with ScriptedServer(answer=answer, models=["scripted"]) as running:
        yield running


def without_times(results: dict[str, Any]) -> dict[str, Any]:
    """A results document without what may differ between a run and its repetition."""
    document: dict[str, Any] = json.loads(json.dumps(results))
    for key in ("date", "total_evaluation_time_seconds"):
        document.pop(key)
    document["config"]["model_args"].pop("num_concurrent")
    for config in document["configs"].values():
        config["metadata"].pop("num_concurrent")
    assay = document["assay"]
    assay.pop("probe", None)
    for key in ("seconds", "latency_seconds", "attempts", "concurrency"):
        assay["totals"].pop(key)
    provenance = assay["provenance"]
    provenance.pop("journal")
    for key in ("output_dir", "fresh"):
        provenance["specification"].pop(key)
    provenance["specification"]["model"].pop("concurrency")
    return document


def samples(evaluation: Evaluation) -> dict[str, str]:
    stamp = evaluation.results_file.stem.removeprefix("results_")
    return {
        path.name.removesuffix(f"_{stamp}.jsonl"): path.read_text()
        for path in evaluation.results_file.parent.glob(f"samples_*_{stamp}.jsonl")
    }


@pytest.mark.parametrize("concurrency", [5, 32, "auto"])
def test_concurrency_changes_no_result(server: ScriptedServer, tmp_path: Path, concurrency: int | str) -> None:
    alone = evaluate(specification(server, tmp_path / "alone", concurrency=1))
    server.latency = lambda body: random.Random(json.dumps(body)).random() * 0.05
    together = evaluate(specification(server, tmp_path / "together", concurrency=concurrency))
    assert without_times(alone.results) == without_times(together.results)
    assert samples(alone) == samples(together)
    assert len(samples(alone)) == 2


def test_passing_faults_change_no_result(server: ScriptedServer, tmp_path: Path) -> None:
    healthy = evaluate(specification(server, tmp_path / "healthy"))
    server.faults = (
        Fault("http_500", fraction=0.2, first=1),
        Fault("malformed_json", fraction=0.2, first=1),
        Fault("reset", fraction=0.2, first=1),
    )
    troubled = evaluate(specification(server, tmp_path / "troubled"))
    assert without_times(troubled.results) == without_times(healthy.results)
    assert samples(troubled) == samples(healthy)


def test_streaming_changes_no_result_and_is_summarised(server: ScriptedServer, tmp_path: Path) -> None:
    whole = evaluate(specification(server, tmp_path / "whole"))
    streamed = evaluate(specification(server, tmp_path / "streamed", stream=True))
    assert samples(streamed) == samples(whole)
    totals = streamed.results["assay"]["totals"]
    seconds = totals.pop("ttft_seconds")
    assert 0 < seconds["p50"] <= seconds["p90"] <= seconds["p99"] <= totals["latency_seconds"]["p99"]
    one, other = without_times(streamed.results), without_times(whole.results)
    assert one["assay"]["provenance"]["specification"]["model"].pop("stream")
    assert not other["assay"]["provenance"]["specification"]["model"].pop("stream")
    assert one == other


def test_a_probe_before_the_run_is_kept_with_it_and_changes_nothing_else(
    server: ScriptedServer, tmp_path: Path
) -> None:
    plain = evaluate(specification(server, tmp_path / "plain"))
    bodies = sorted(request.raw for request in server.requests)
    server.requests.clear()
    # Nothing but whether the key is taken, for which nothing is generated.
    assert [probe.body for probe in server.probes] == [{"model": "scripted", "max_tokens": 1}]
    server.faults = (Fault("http_400", indices=frozenset({3})),)
    troubled = evaluate(msgspec.structs.replace(specification(server, tmp_path / "probed"), probe=True))
    assert len(troubled.failures) == 1
    assert sorted(request.raw for request in server.requests) == bodies
    seen = troubled.results["assay"]["probe"]
    assert (seen["url"], seen["findings"]["chat"]["seen"]) == (server.url, "yes")
    # A resumed run has its probe already. One question shows whether the server takes the requests' fields, four
    # short prompts whether it is still the same.
    probes, server.faults = len(server.probes), ()
    mended = evaluate(msgspec.structs.replace(specification(server, tmp_path / "probed"), probe=True))
    assert len(server.probes) == probes + 1 + 1 + 4 > 10
    assert mended.results["assay"].pop("probe") == seen
    for results in (mended.results, plain.results):
        results["assay"]["provenance"]["specification"].pop("probe")
    assert without_times(mended.results) == without_times(plain.results)
    assert samples(mended) == samples(plain)


@pytest.mark.parametrize("kind", ["http_500", "html", "malformed_json", "reset", "hang"])
def test_no_probe_stops_a_run(
    server: ScriptedServer, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.evaluation.flow._PROBE_SECONDS", 0.3)
    monkeypatch.setattr("assay.client.preflight._KEY_TIMEOUT", 0.3)
    server.faults = (Fault(kind, seconds=60, probes_only=True),)
    evaluation = evaluate(msgspec.structs.replace(specification(server, tmp_path), probe=True))
    assert evaluation.failures == ()
    assert evaluation.results["assay"]["probe"]["findings"]["chat"]["seen"] != "yes"


def test_a_run_may_go_on_streamed_or_not(server: ScriptedServer, tmp_path: Path) -> None:
    server.faults = (Fault("http_400", fraction=0.2),)
    troubled = evaluate(specification(server, tmp_path))
    asked, server.faults = server.count, ()
    mended = evaluate(specification(server, tmp_path, stream=True))
    assert mended.failures == ()
    assert server.count - asked == len(troubled.failures)
    assert samples(mended) == samples(evaluate(specification(server, tmp_path / "whole")))


def test_answers_in_another_model_s_name_are_counted(server: ScriptedServer, tmp_path: Path) -> None:
    names = itertools.cycle(["scripted", "scripted@main", "other"])
    server.answer = lambda body: {**reply_with("The answer is 8", body), "model": next(names)}
    evaluation = evaluate(specification(server, tmp_path, concurrency=1))
    assert evaluation.results["assay"]["totals"]["other_models"] == {"other": 40}


def test_what_fails_for_good_is_failed_and_nothing_else_changes(server: ScriptedServer, tmp_path: Path) -> None:
    healthy = evaluate(specification(server, tmp_path / "healthy"))
    server.faults = (Fault("http_400", fraction=0.1),)
    troubled = evaluate(specification(server, tmp_path / "troubled"))

    failed = {(failure.task, failure.doc_id) for failure in troubled.failures}
    assert 0 < len(failed) < 30
    assert {failure.cause for failure in troubled.failures} == {FailureCause.BAD_REQUEST}
    for name, text in samples(healthy).items():
        task = name.removeprefix("samples_")
        kept = [line for line in text.splitlines() if (task, json.loads(line)["doc_id"]) not in failed]
        assert samples(troubled)[name].splitlines() == kept
    for score in troubled.scores:
        assert score.failed == sum(1 for task, _ in failed if task == score.task)
        assert score.n + score.failed == 60
        assert score.bounds is not None
        assert score.bounds.high - score.bounds.low == pytest.approx(score.failed / 60)


def test_retrying_failed_samples_asks_nothing_else_and_starts_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    retry = msgspec.structs.replace(specification(server, tmp_path), retry_failed=True)
    with pytest.raises(SpecificationError, match="holds no run"):
        evaluate(retry)
    server.faults = (Fault("http_400", fraction=0.1),)
    troubled = evaluate(specification(server, tmp_path))
    asked, server.faults = server.count, ()
    mended = evaluate(retry)
    assert server.count - asked == len(troubled.failures) > 0
    assert (mended.failures, mended.journal) == ((), troubled.journal)
    assert mended.results_file != troubled.results_file
    # Now there is nothing left: the same results again, and no further run.
    again = evaluate(retry)
    assert server.count - asked == len(troubled.failures)
    assert again.journal == troubled.journal
    assert samples(again) == samples(mended)
    assert again.scores == mended.scores


def test_failed_samples_alone_are_asked_again(server: ScriptedServer, tmp_path: Path) -> None:
    server.faults = (Fault("http_400", fraction=0.1),)
    troubled = evaluate(specification(server, tmp_path))
    asked = len(server.requests)
    server.faults = ()
    mended = evaluate(specification(server, tmp_path))
    assert mended.failures == ()
    assert mended.journal == troubled.journal
    completions = [request for request in server.requests[asked:] if request.path.endswith("completions")]
    assert len(completions) == len(troubled.failures)


def test_a_finished_run_is_not_reused(server: ScriptedServer, tmp_path: Path) -> None:
    first = evaluate(specification(server, tmp_path))
    second = evaluate(specification(server, tmp_path))
    assert first.journal != second.journal
    assert first.results_file != second.results_file
    assert Counter(json.dumps(body) for body in server.answered).most_common(1)[0][1] == 2


def test_failures_decide_no_verdict(server: ScriptedServer, tmp_path: Path) -> None:
    healthy = evaluate(
        specification(server, tmp_path / "healthy", checks=(Check(metric=KEY, min=0.5, task="counting"),))
    )
    assert [result.verdict for result in healthy.checks] == [Verdict.PASS]
    server.faults = (Fault("http_400", fraction=0.1),)
    checks = tuple(Check(metric=KEY, min=minimum, task="counting") for minimum in (0.2, 0.65, 0.95))
    troubled = evaluate(specification(server, tmp_path / "troubled", checks=checks))
    assert [result.verdict for result in troubled.checks] == [Verdict.PASS, Verdict.INVALID, Verdict.FAIL]


def test_outcomes(server: ScriptedServer, tmp_path: Path) -> None:
    server.faults = (
        Fault("truncated", indices=frozenset({0})),
        Fault("empty_content", indices=frozenset({1})),
        Fault("null_content", indices=frozenset({2})),
        Fault("http_400", indices=frozenset({3})),
    )
    evaluation = evaluate(specification(server, tmp_path, concurrency=1))
    counting = next(score for score in evaluation.scores if score.task == "counting")
    assert counting.outcomes[Outcome.TRUNCATED] == 1
    assert counting.outcomes[Outcome.EMPTY] == 2
    assert counting.outcomes[Outcome.FAILED] == 1
    assert counting.outcomes[Outcome.UNEXTRACTED] > 10
    assert sum(counting.outcomes.values()) == 60


def test_an_aggregation_that_fails_is_told_with_its_task(server: ScriptedServer, tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    for file in TASKS.iterdir():
        if file.is_file():
            (folder / file.name).write_text(file.read_text())
    (folder / "sums.py").write_text("def broken(values):\n    raise ValueError('nothing\\nto sum')\n")
    (folder / "summing.yaml").write_text(
        "include: _template_yaml\ntask: summing\ndataset_kwargs: {kind: summing}\n"
        "metric_list: [{metric: exact_match, aggregation: !function sums.broken}]\n"
    )
    asked = msgspec.structs.replace(
        specification(server, tmp_path / "out"),
        tasks=("counting", "summing", "naming"),
        options=TaskOptions(include_path=str(folder), limit=5),
    )
    for answers in (15, 0):
        before = len(server.answered)
        with pytest.raises(TaskConfigError) as caught:
            evaluate(msgspec.structs.replace(asked, probe=False))
        assert str(caught.value).startswith(
            "task 'summing': the scores cannot be aggregated: nothing to sum (ValueError, sums.py line 2); the answers"
        )
        assert len(server.answered) - before == answers


def test_a_bad_key_is_refused_before_any_request(server: ScriptedServer, tmp_path: Path) -> None:
    with pytest.raises(UnknownMetricError, match=r"exact_match,get-answer"):
        evaluate(
            specification(server, tmp_path, checks=(Check(metric="exact_match,strict", min=0.5, task="counting"),))
        )
    assert server.answered == []


def test_an_unknown_task_names_the_near_ones(server: ScriptedServer, tmp_path: Path) -> None:
    spec = specification(server, tmp_path)
    with pytest.raises(UnknownTaskError, match="counting"):
        evaluate(Specification(tasks=("countin",), model=spec.model, options=spec.options, output_dir=spec.output_dir))


def test_a_wrong_model_shows_what_is_served(server: ScriptedServer, tmp_path: Path) -> None:
    spec = specification(server, tmp_path)
    wrong = ModelSpec(base_url=server.url, model="other")
    with pytest.raises(ModelNotServedError, match="'scripted'"):
        evaluate(Specification(tasks=spec.tasks, model=wrong, options=spec.options, output_dir=spec.output_dir))


def test_no_server(tmp_path: Path) -> None:
    nowhere = ModelSpec(base_url="http://127.0.0.1:9", model="m")
    with pytest.raises(ServerUnreachableError, match=r"127\.0\.0\.1:9"):
        evaluate(Specification(tasks=("gsm8k",), model=nowhere, output_dir=str(tmp_path)))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"tasks": ("arc_easy",)}, "scored by log-likelihood .multiple_choice., which chat completions cannot give"),
        ({"options": {"data_dir": "/nowhere"}}, "data_dir '/nowhere' is no folder"),
        ({"options": {"samples": {"naming": [1]}}}, "documents of 'naming', which is none of the tasks to run"),
        ({"checks": (Check(metric="exact_match", min=60),)}, "has min 60; .* write 0.6 for 60 %"),
        ({"checks": (Check(metric="exact_math", min=0.6),)}, "no metric 'exact_math'"),
    ],
)
def test_a_mistake_that_shows_without_a_server_is_said_where_there_is_none(
    tmp_path: Path, how: dict[str, Any], said: str
) -> None:
    options = TaskOptions(**{"include_path": str(TASKS), **how.pop("options", {})})
    asked: dict[str, Any] = {"tasks": ("counting",), "output_dir": str(tmp_path), "options": options, **how}
    with pytest.raises(UsageError, match=said):
        evaluate(Specification(model=ModelSpec(base_url="http://127.0.0.1:9", model="m"), **asked))


def test_inside_a_running_loop(server: ScriptedServer, tmp_path: Path) -> None:
    evaluation = asyncio.run(evaluate_async(specification(server, tmp_path)))
    assert evaluation.results_file.exists()


def start(server: ScriptedServer, output_dir: Path, **how: Any) -> subprocess.Popen[str]:
    command = [
        *(sys.executable, "-m", "assay", "run", "counting,naming", "--base-url", server.url, "--model", "scripted"),
        *("--include-path", str(TASKS), "--output-dir", str(output_dir), "--concurrency", "4"),
        "--no-probe",  # as from Python
    ]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
        # The tests themselves may run in the background, where shells have SIGINT ignored.
        **{"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **how},
    )


def journaled(output_dir: Path) -> set[tuple[str, int]]:
    """Documents whose answers the run's journals hold."""
    return {
        (record.task, record.doc_id)
        for path in find_journals(output_dir / "scripted" / "journal")
        for record in records(path)
        if isinstance(record, ResponseRecord) and isinstance(record.response, Answer)
    }


def wait_for_answers(server: ScriptedServer, count: int) -> None:
    give_up = time.monotonic() + 60
    while len(server.answered) < count:
        assert time.monotonic() < give_up, "the run did not get going"
        time.sleep(0.005)


def received(server: ScriptedServer) -> int:
    """Completions asked for so far, answered or not."""
    return sum(request.path.endswith("completions") for request in server.requests)


def test_kill_9_three_times(server: ScriptedServer, tmp_path: Path) -> None:
    untouched = evaluate(specification(server, tmp_path / "untouched", concurrency=4))
    prompts = {
        (name.removeprefix("samples_"), line["doc_id"]): line["arguments"]["gen_args_0"]["arg_0"][0]
        for name, text in samples(untouched).items()
        for line in map(json.loads, text.splitlines())
    }
    output_dir = tmp_path / "killed"
    chance = random.Random(5)
    for kill in range(3):
        kept = {prompts[place] for place in journaled(output_dir)}
        before = len(server.answered)
        until = chance.randint(5, 25)
        server.hold_after(until + 8, latency=0.02)  # killed while answers come
        process = start(server, output_dir)
        wait_for_answers(server, before + until)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        asked = {json.dumps(body["messages"], ensure_ascii=False) for body in server.answered[before:]}
        assert not asked & kept, f"after kill {kill} an answer that was kept was asked for again"
    kept = {prompts[place] for place in journaled(output_dir)}
    assert 15 <= len(kept) < 120
    before = len(server.answered)
    server.latency = 0.0
    out, err = start(server, output_dir).communicate(timeout=60)
    assert "going on with" in err, err
    asked = {json.dumps(body["messages"], ensure_ascii=False) for body in server.answered[before:]}
    assert asked == set(prompts.values()) - kept

    results_file = next((output_dir / "scripted").glob("results_*.json"))
    assert str(results_file) in out
    assert without_times(json.loads(results_file.read_text())) == without_times(untouched.results)
    stamp = results_file.stem.removeprefix("results_")
    for name, text in samples(untouched).items():
        assert results_file.with_name(f"{name}_{stamp}.jsonl").read_text() == text
    (journal,) = find_journals(output_dir / "scripted" / "journal")
    assert check(journal).finished


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_leaves_a_resumable_run(
    server: ScriptedServer, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    server.hold_after(8)
    process = start(server, tmp_path)
    wait_for_answers(server, 8)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "run the same command again" in err
    assert "Traceback" not in out + err
    kept = journaled(tmp_path)
    assert kept
    server.latency = 0.0
    before = received(server)
    resumed = start(server, tmp_path)
    resumed.communicate(timeout=60)
    assert resumed.returncode == 0
    assert received(server) - before == 120 - len(kept)


def test_sigterm_stops_a_job_in_the_background(server: ScriptedServer, tmp_path: Path) -> None:
    """Shells start such jobs with SIGINT ignored."""
    server.hold_after(8)
    process = start(server, tmp_path, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    wait_for_answers(server, 8)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "run the same command again" in err
    assert journaled(tmp_path)


def test_an_output_folder_that_is_removed_under_a_run_is_made_again(
    server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = itertools.count()

    def removing(body: dict[str, Any]) -> str:
        if next(asked) == 60:
            shutil.rmtree(tmp_path / "out")
        return answer(body)

    server.answer = removing
    evaluation = evaluate(msgspec.structs.replace(specification(server, tmp_path / "out"), probe=False))
    assert "was deleted or moved away while the run is writing it" in caplog.text
    assert len(samples(evaluation)) == 2
    assert (check(evaluation.journal).answers, check(evaluation.journal).damaged) == (120, ())


def test_samples_files_are_left_out_on_request(server: ScriptedServer, tmp_path: Path) -> None:
    whole = evaluate(specification(server, tmp_path / "whole"))
    bare = evaluate(msgspec.structs.replace(specification(server, tmp_path / "bare"), log_samples=False))
    assert bare.results["task_hashes"] == {} != whole.results["task_hashes"]
    assert bare.results["results"] == whole.results["results"]
    assert samples(bare) == {}


def test_a_task_whose_name_is_no_file_name_runs_without_samples_files(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(
        f"include: {TASKS}/_template_yaml\ntask: one/other\ndataset_kwargs: {{kind: a}}\n"
    )
    (tmp_path / "rows.py").write_text((TASKS / "rows.py").read_text())
    asked = msgspec.structs.replace(
        specification(server, tmp_path / "out"),
        tasks=("one/other",),
        options=TaskOptions(include_path=str(tmp_path), limit=5),
    )
    with pytest.raises(TaskConfigError, match=r"'one/other' cannot have a samples file: .*--no-log-samples"):
        evaluate(asked)
    assert server.answered == []
    run = evaluate(msgspec.structs.replace(asked, log_samples=False))
    assert [(score.task, score.n) for score in run.scores] == [("one/other", 5)]
    assert write_report(run.results_file).exists()


@pytest.mark.parametrize("under", ["/v1", "", "/openai"])
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_the_address_that_answered_is_the_one_in_the_results(tmp_path: Path, under: str, endpoint: str) -> None:
    def said(body: dict[str, Any]) -> str:
        return answer(body) if "messages" in body else "no"

    with ScriptedServer(answer=said, models=["scripted"], under=under) as server:
        asked = specification(server, tmp_path)
        url = f"{server.url}{under.removesuffix('/v1')}"
        model = msgspec.structs.replace(asked.model, base_url=url, endpoint=endpoint)
        results = evaluate(msgspec.structs.replace(asked, model=model)).results
        address = f"{server.url}{server.requests[-1].path}"
    assert results["config"]["model_args"]["base_url"] == address
    assert {config["metadata"]["base_url"] for config in results["configs"].values()} == {address}


def test_a_run_without_checks_has_no_verdict_and_ends_with_4_where_samples_failed(
    server: ScriptedServer, tmp_path: Path
) -> None:
    whole = evaluate(specification(server, tmp_path / "whole"))
    assert (whole.verdict, whole.exit_code) == (None, 0)
    failed = FailedSample("counting", 0, FailureCause.TIMED_OUT, "")
    assert msgspec.structs.replace(whole, failures=(failed,)).exit_code == 4
    assert msgspec.structs.replace(whole, scores=()).exit_code == 4
    demand = (Check(metric=KEY, task="counting", min=0.99),)
    judged = evaluate(specification(server, tmp_path / "judged", checks=demand))
    assert (judged.verdict, judged.exit_code) == (Verdict.FAIL, 1)


class Entries(Progress):
    """Keeps what happens between the beginning and the end of runs."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __enter__(self) -> Self:
        self.told.append("begun")
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.told.append("ended" if error is None else type(error).__name__)

    def loaded(self, expected: dict[str, int], kept: int, journal: Path) -> None:
        self.told.append("loaded")


def test_each_run_enters_and_leaves_its_progress(server: ScriptedServer, tmp_path: Path) -> None:
    progress = Entries()
    evaluate(specification(server, tmp_path), progress)
    asyncio.run(evaluate_async(specification(server, tmp_path), progress))
    missing = specification(server, tmp_path / "missing", checks=(Check(metric="none,none", min=0.5),))
    with pytest.raises(UnknownMetricError):
        evaluate(missing, progress)
    assert progress.told == ["begun", "loaded", "ended"] * 2 + ["begun", "UnknownMetricError"]


def test_evaluate_async_leaves_a_run_unfinished_that_has_yet_to_be_told(server: ScriptedServer, tmp_path: Path) -> None:
    evaluation = asyncio.run(evaluate_async(specification(server, tmp_path), finish=False))
    asked = server.count
    assert not check(evaluation.journal).finished
    assert evaluate(specification(server, tmp_path)).results_file == evaluation.results_file
    assert server.count == asked
