"""Policies run to verdicts, and what CI systems get to see of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

import assay.evaluation
from assay.cli import main
from assay.cli.gate import gate
from assay.errors import BaselineMismatchError, OutputError, SpecificationError
from assay.evaluation import evaluate
from assay.gate.explain import explain_gate
from assay.gate.policy import load_policy
from assay.gate.run import GateReport, ModelOutcome, run_gate
from assay.reports.gate import gate_markdown
from assay.reports.github import annotation_lines
from assay.reports.junit import junit_xml
from assay.results.check_results import CheckResult, Verdict
from assay.types import ModelSpec, Specification, TaskOptions
from tests.gate.conftest import KEY, TASKS, right, wrong
from tests.servers.scripted import ScriptedServer, reply_with


def write_policy(folder: Path, url: str, checks: str, head: str = "") -> Path:
    file = folder / "gate.toml"
    file.write_text(
        f'{head}\n[options]\ninclude_path = "{TASKS}"\n[models.main]\nbase_url = "{url}"\nmodel = "scripted"\n'
        f"concurrency = 4\n{checks}"
    )
    return file


MINIMUM = f'[[checks]]\ntask = "counting"\nmetric = "{KEY}"\nmin = 0.8\n'


def run(file: Path, *arguments: str, **environment: str) -> Result:
    env = {"GITHUB_ACTIONS": "false", **environment}
    return CliRunner(env=env).invoke(gate, [str(file), *arguments], standalone_mode=False)


def test_explain_refuses_a_task_that_no_check_looks_at(tmp_path: Path) -> None:
    head = 'tasks = ["counting", "naming"]'
    result = run(write_policy(tmp_path, "http://127.0.0.1:9", MINIMUM, head), "--explain")
    assert isinstance(result.exception, SpecificationError)
    assert "no check looks at naming" in str(result.exception)


@pytest.mark.parametrize(
    ("answer", "head", "code"),
    [(right, "", 0), (wrong, "", 1), (right, "[budget]\ndocuments = 3", 3)],
    ids=["pass", "fail", "inconclusive"],
)
def test_exit_codes_and_reports(server: ScriptedServer, tmp_path: Path, answer: Any, head: str, code: int) -> None:
    server.answer = answer
    file = write_policy(tmp_path, server.url, MINIMUM, head)
    summary = tmp_path / "summary.md"
    result = run(
        file,
        *("--junit", str(tmp_path / "gate.xml"), "--markdown", str(tmp_path / "comment.md")),
        *("--html", str(tmp_path / "gate.html")),
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert result.return_value == code, result.output
    word = {0: "pass", 1: "fail", 3: "inconclusive"}[code]
    assert f"gate: {word}" in result.output
    (suite,) = ET.parse(tmp_path / "gate.xml").getroot()
    assert suite.get("tests") == "1"
    (case,) = suite
    assert case.get("classname") == "assay.main.counting"
    assert case.get("name") == f"{KEY} >= 0.8"
    kinds = {0: "system-out", 1: "failure", 3: "error"}
    assert [child.tag for child in case] == [kinds[code]]
    assert f"Assay gate: {word}" in summary.read_text()
    assert (tmp_path / "comment.md").read_text().strip() == summary.read_text().strip()
    page = (tmp_path / "gate.html").read_text()
    assert f'<span class="verdict {word}">{word}</span>' in page
    (link,) = re.findall(r'<a href="([^"]*report_[^"]*)"', page)
    assert (tmp_path / link).exists()
    annotation = {0: None, 1: "::error title=assay%3A main counting fail::", 3: "::warning title="}[code]
    assert annotation is None or annotation in result.output


@pytest.mark.parametrize("option", ["--junit", "--markdown", "--html"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_asked(
    server: ScriptedServer, tmp_path: Path, option: str
) -> None:
    (tmp_path / "file").write_text("")
    result = run(write_policy(tmp_path, server.url, MINIMUM), option, str(tmp_path / "file" / "report"))
    assert isinstance(result.exception, OutputError)
    assert str(tmp_path / "file" / "report") in str(result.exception)
    assert server.count == 0


def test_a_verdict_is_told_and_other_reports_are_written_where_one_cannot_be(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "later" / "gate.xml"

    def folder_in_its_place(*_: Any, **how: Any) -> Any:
        taken.mkdir()
        return evaluate(*_, **how)

    evaluate = assay.evaluation.evaluate
    monkeypatch.setattr(assay.evaluation, "evaluate", folder_in_its_place)
    file = write_policy(tmp_path, server.url, MINIMUM)
    result = run(file, "--junit", str(taken), "--markdown", str(tmp_path / "comment.md"))
    assert isinstance(result.exception, OutputError)
    assert "gate: pass" in result.output
    assert "Assay gate: pass" in (tmp_path / "comment.md").read_text()


def test_a_dead_server_is_invalid_and_reported(tmp_path: Path) -> None:
    file = write_policy(tmp_path, "http://127.0.0.1:9", MINIMUM)
    result = run(file, "--junit", str(tmp_path / "gate.xml"), "--json")
    assert result.return_value == 4
    document = json.loads(result.stdout)
    assert document["verdict"] == "invalid"
    assert document["models"][0]["checks"][0]["verdict"] == "invalid"
    error = ET.parse(tmp_path / "gate.xml").getroot().find("testsuite/testcase/error")
    assert error is not None
    assert "127.0.0.1:9" in str(error.get("message"))


def test_one_dead_server_does_not_keep_another_from_being_judged(server: ScriptedServer, tmp_path: Path) -> None:
    file = write_policy(tmp_path, server.url, '[models.dead]\nbase_url = "http://127.0.0.1:9"\nmodel = "m"\n' + MINIMUM)
    document = json.loads(run(file, "--json").stdout)
    assert [model["checks"][0]["verdict"] for model in document["models"]] == ["pass", "invalid"]
    assert document["verdict"] == "invalid"


def test_against_a_baseline(server: ScriptedServer, tmp_path: Path) -> None:
    full = Specification(
        tasks=("counting",),
        model=ModelSpec(base_url=server.url, model="scripted"),
        options=TaskOptions(include_path=str(TASKS)),
        output_dir=str(tmp_path / "full"),
    )
    baseline = evaluate(full).results_file
    check = f'[[checks]]\ntask = "counting"\nmetric = "{KEY}"\nbaseline = "{baseline}"\nmargin = 0.2\n'
    assert run(write_policy(tmp_path, server.url, check)).return_value == 0
    server.answer = wrong
    assert run(write_policy(tmp_path, server.url, check)).return_value == 1
    hot = write_policy(tmp_path, server.url, check)
    hot.write_text(hot.read_text().replace("[options]\n", "[options]\ngen_kwargs = { temperature = 2.0 }\n"))
    result = run(hot)
    assert result.return_value == 4
    assert "generation_kwargs.temperature: not set -> 2.0" in result.output
    explained = run(hot, "--explain")
    assert isinstance(explained.exception, BaselineMismatchError)
    assert "generation_kwargs.temperature: not set -> 2.0" in str(explained.exception)


def test_a_group_and_one_of_its_members(server: ScriptedServer, tmp_path: Path) -> None:
    check = f'[[checks]]\ntask = "both"\nmetric = "{KEY}"\nmin = 0.6\n'
    document = json.loads(run(write_policy(tmp_path, server.url, check + MINIMUM, 'tasks = ["both"]'), "--json").stdout)
    results = document["models"][0]["checks"]
    assert [(result["task"], result["verdict"], result["population"]) for result in results] == [
        ("both", "pass", 120),
        ("counting", "pass", 60),
    ]


def test_overrides_say_which_model_they_are_for(server: ScriptedServer, tmp_path: Path) -> None:
    file = write_policy(tmp_path, "http://127.0.0.1:9", MINIMUM)
    assert run(file, "--base-url", server.url).return_value == 0
    assert run(file, "--base-url", f"main={server.url}", "--fresh").return_value == 0
    two = write_policy(tmp_path, server.url, '[models.other]\nbase_url = "http://x"\nmodel = "m"\n' + MINIMUM)
    result = run(two, "--base-url", server.url)
    assert "does not say which model" in str(result.exception)


def test_explain_asks_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    checks = MINIMUM + f'[[checks]]\ntask = "naming"\nmetric = "{KEY}"\nbaseline = "b.json"\nmargin = 0.05\n'
    file = write_policy(tmp_path, server.url, checks, "[budget]\ndocuments = 40")
    shown = run(file, "--explain").output
    assert "40 of 60" in shown
    outlooks = json.loads(run(file, "--explain", "--json").stdout)
    assert [outlook["task"] for outlook in outlooks] == ["counting", "naming"]
    assert outlooks[0]["broken_documents"] < outlooks[0]["healthy_documents"] <= 60
    assert outlooks[0]["detectable"] > 0
    assert outlooks[1]["detectable"] > 0.05
    assert outlooks[1]["demand"].endswith("b.json, which is not there yet")
    assert [outlook["alpha"] for outlook in outlooks] == [0.005, 0.005]
    whole = write_policy(tmp_path, server.url, MINIMUM, "stop_early = false")
    assert json.loads(run(whole, "--explain", "--json").stdout)[0]["alpha"] is None
    assert server.requests == []
    assert server.lookups == []


def test_explain_finds_a_baseline_by_its_place_among_the_runs(server: ScriptedServer, tmp_path: Path) -> None:
    full = run(write_policy(tmp_path, server.url, MINIMUM, "stop_early = false"), "--json")
    assert full.return_value == 0
    check = f'[[checks]]\ntask = "counting"\nmetric = "{KEY}"\nbaseline = "results/BASELINE"\nmargin = 0.05\n'
    demands = {}
    for name in ("last", "last~1"):
        shown = run(write_policy(tmp_path, server.url, check.replace("BASELINE", name)), "--explain", "--json").stdout
        demands[name] = json.loads(shown)[0]["demand"].endswith("which is not there yet")
    assert demands == {"last": False, "last~1": True}


def test_an_unknown_key_is_wrong_usage(tmp_path: Path) -> None:
    file = write_policy(tmp_path, "http://x", MINIMUM.replace("min =", "minn ="))
    command = [sys.executable, "-m", "assay", "gate", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "there is no key 'minn'; there is 'min'; did you mean that?" in done.stderr


def hostile_report() -> GateReport:
    nasty = "<script>|\x1b[31m\n::error::@everyone %0A]]> \x00 [x](http://evil)"
    check = CheckResult(task=nasty, metric=nasty, min=0.5, verdict=Verdict.FAIL, reason=nasty)
    model = ModelOutcome(name=nasty, model=nasty, base_url="http://x", checks=(check,))
    return GateReport(policy=nasty, verdict=Verdict.FAIL, models=(model,))


def test_reports_take_nothing_for_markup() -> None:
    report = hostile_report()
    root = ET.fromstring(junit_xml(report))
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert "<script>" in str(failure.get("message"))
    markdown = gate_markdown(report)
    assert "<script>" not in markdown
    assert "@everyone" not in markdown
    assert "](http" not in markdown
    assert "\x1b" not in markdown
    (line,) = annotation_lines(report)
    assert "\n" not in line
    assert line.startswith("::error title=")
    assert "%0A" not in line.replace("%250A", "")


def test_a_fault_is_in_every_report_of_a_gate_that_passes() -> None:
    check = CheckResult(task="t", metric=KEY, min=0.5, verdict=Verdict.PASS, reason="0.9000 >= 0.5")
    fault = "triage: every check passes, and yet: the BOS token is doubled"
    model = ModelOutcome(name="main", model="m", base_url="http://x", checks=(check,), triage=fault)
    report = GateReport(policy="p", verdict=Verdict.PASS, models=(model,))
    assert fault in junit_xml(report).decode()
    assert "the BOS token is doubled" in gate_markdown(report)
    assert annotation_lines(report) == [f"::warning title=assay%3A main::{fault}"]
    silent = ModelOutcome(name="main", model="m", base_url="http://x", checks=(check,))
    assert annotation_lines(GateReport(policy="p", verdict=Verdict.PASS, models=(silent,))) == []


def test_answers_in_another_models_name_are_remarked_in_every_report_of_a_gate(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.answer = lambda body: {**reply_with(right(body), body), "model": "another"}
    files = {option: tmp_path / option.strip("-") for option in ("--junit", "--markdown")}
    result = run(
        write_policy(tmp_path, server.url, MINIMUM), *(text for pair in files.items() for text in map(str, pair))
    )
    assert result.return_value == 0, result.output
    remark = "asked for 'scripted', but"
    assert remark in result.output
    assert all(remark in file.read_text() for file in files.values())


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--json"], 0), (["--explain"], 141)])
def test_a_reader_that_has_gone_makes_no_verdict(
    server: ScriptedServer, tmp_path: Path, options: list[str], code: int
) -> None:
    file = write_policy(tmp_path, server.url, MINIMUM)
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "assay", "gate", str(file), *options]
    ran = subprocess.run(command, stdout=write, timeout=60, check=False)
    os.close(write)
    assert ran.returncode == code


def test_a_policy_file_is_judged_by_one_call(server: ScriptedServer, tmp_path: Path) -> None:
    file = write_policy(tmp_path, server.url, MINIMUM)
    (outlook,) = explain_gate(file)
    assert (outlook.model, outlook.metric) == ("main", KEY)
    assert server.count == 0
    report = run_gate(file)
    assert (report.policy, report.verdict) == (str(file), Verdict.PASS)
    assert run_gate(load_policy(file), name="nightly").policy == "nightly"


@pytest.mark.parametrize(("answer", "code"), [(right, 0), (wrong, 1)])
def test_verdicts_are_codes_that_git_bisect_understands(answer: Any, code: int, tmp_path: Path) -> None:
    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        assert bisected(bisect_policy(tmp_path, server.url), tmp_path) == code


def test_no_verdict_is_a_commit_to_skip_and_a_wrong_policy_stops_the_search(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert bisected(bisect_policy(tmp_path, "http://127.0.0.1:1"), tmp_path, "--give-up-after", "0.2") == 125
    assert bisected(tmp_path / "nowhere.toml", tmp_path) == 128
    assert "there is no policy file" in capfd.readouterr().err


def bisected(file: Path, tmp_path: Path, *options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["gate", str(file), "--bisect", "--output-dir", str(tmp_path / "out"), *options])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def bisect_policy(folder: Path, url: str) -> Path:
    file = folder / "bisect.toml"
    file.write_text(
        f'[models.main]\nbase_url = "{url}"\nmodel = "scripted"\n[options]\ninclude_path = "{TASKS}"\n'
        f'[[checks]]\ntask = "counting"\nmetric = "{KEY}"\nmin = 0.8\n'
    )
    return file
