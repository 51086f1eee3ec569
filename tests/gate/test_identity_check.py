"""The identity check of a gate: asked first, settles what it may, and leaves the rest to the scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from assay.errors import SpecificationError, UnsupportedTaskError
from assay.evaluation import evaluate
from assay.gate.policy import load_policy, specifications
from assay.gate.run import ModelOutcome, run_gate
from assay.identity import take_fingerprint, write_fingerprint
from assay.reports.gate import gate_markdown
from assay.reports.github import annotation_lines
from assay.reports.junit import junit_xml
from assay.types import ModelSpec, Specification, TaskOptions
from tests.gate.conftest import KEY, TASKS, right, wrong
from tests.identity.test_fingerprint import model, shifted
from tests.servers.scripted import ScriptedServer

Answer = Callable[[dict[str, Any]], Any]


def both(first_tokens: Answer, scores: Answer) -> Answer:
    return lambda body: first_tokens(body) if body.get("logprobs") else scores(body)


HEALTHY = both(model(), right)
CHANGED = both(model(shifted(0.5)), right)
WORSE = both(model(shifted(0.5)), wrong)
SILENT = right


@pytest.fixture
def folder(server: ScriptedServer, tmp_path: Path) -> Path:
    """With a record of the healthy server, and a baseline of it."""
    server.answer = HEALTHY
    spec = ModelSpec(base_url=server.url, model="scripted")
    write_fingerprint(tmp_path / "record.json", take_fingerprint(spec, repetitions=2))
    options = TaskOptions(include_path=str(TASKS))
    evaluate(Specification(tasks=("counting",), model=spec, options=options, output_dir=str(tmp_path / "base")))
    server.requests.clear()
    return tmp_path


BASELINE = f'[[checks]]\ntask = "counting"\nmetric = "{KEY}"\nbaseline = "base"\nmargin = 0.1\n'
IDENTITY = 'identity = {record = "record.json", settles = true}\n'


def policy(folder: Path, url: str, head: str, checks: str = BASELINE, options: str = "") -> Path:
    file = folder / "gate.toml"
    file.write_text(
        f'{head}\noutput_dir = "out"\nprobe = false\n[options]\ninclude_path = "{TASKS}"\n{options}\n[models.main]\n'
        f'base_url = "{url}"\nmodel = "scripted"\n{checks}'
    )
    return file


def asked_for_scores(server: ScriptedServer) -> int:
    return sum("messages" in got.body and not got.body.get("logprobs") for got in server.requests)


def outcome_of(server: ScriptedServer, file: Path, answer: Answer) -> tuple[str, ModelOutcome]:
    server.answer = answer
    report = run_gate(file)
    return report.verdict, report.models[0]


def test_a_healthy_server_passes_after_fifty_one_token_requests(server: ScriptedServer, folder: Path) -> None:
    verdict, outcome = outcome_of(server, policy(folder, server.url, IDENTITY), HEALTHY)
    assert (verdict, [check.verdict for check in outcome.checks]) == ("pass", ["pass"])
    assert outcome.identity is not None
    assert outcome.identity.settled
    assert outcome.identity.result.requests <= 60
    assert "settled without questions" in outcome.checks[0].reason
    assert asked_for_scores(server) == 0


def test_without_settles_the_scores_are_asked(server: ScriptedServer, folder: Path) -> None:
    file = policy(folder, server.url, 'identity = {record = "record.json"}\n')
    verdict, outcome = outcome_of(server, file, HEALTHY)
    assert verdict == "pass"
    assert outcome.identity is not None
    assert not outcome.identity.settled
    assert asked_for_scores(server) > 0


@pytest.mark.parametrize(("answer", "verdict"), [(CHANGED, "pass"), (WORSE, "fail")], ids=["as good", "worse"])
def test_the_scores_of_a_different_server_decide(
    server: ScriptedServer, folder: Path, answer: Answer, verdict: str
) -> None:
    found, outcome = outcome_of(server, policy(folder, server.url, IDENTITY), answer)
    assert outcome.identity is not None
    assert (outcome.identity.result.verdict, found) == ("different", verdict)
    assert asked_for_scores(server) > 0


@pytest.mark.parametrize(
    ("options", "record", "why"),
    [("system_instruction = 'Add.'", "scripted", "prompts of counting differ"), ("", "another", "is of scripted")],
    ids=["other prompts", "another model's record"],
)
def test_same_settles_no_check_whose_baseline_does_not_fit(
    server: ScriptedServer, folder: Path, options: str, record: str, why: str
) -> None:
    text = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**text, "model": record}))
    verdict, outcome = outcome_of(server, policy(folder, server.url, IDENTITY, options=options), HEALTHY)
    assert outcome.identity is not None
    assert not outcome.identity.settled
    assert outcome.identity.not_settled is not None
    assert why in outcome.identity.not_settled
    assert verdict == ("invalid" if options else "pass")


@pytest.mark.parametrize(("answer", "verdict"), [(HEALTHY, "pass"), (CHANGED, "fail")], ids=["same", "different"])
def test_identity_alone_decides(server: ScriptedServer, folder: Path, answer: Answer, verdict: str) -> None:
    server.answer = answer
    report = run_gate(policy(folder, server.url, 'identity = {record = "record.json"}', checks=""))
    assert report.verdict == verdict
    (suite,) = ET.fromstring(junit_xml(report))
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0" if verdict == "pass" else "1")
    assert suite[0].get("name") == "identity"
    assert [child.tag for child in suite[0]] == ["system-out" if verdict == "pass" else "failure"]
    word = "same" if verdict == "pass" else "different"
    assert f"identity: {word} as " in gate_markdown(report)
    assert [line.split()[0] for line in annotation_lines(report)] == ([] if verdict == "pass" else ["::error"])


def test_a_difference_that_scores_acquit_is_a_warning(server: ScriptedServer, folder: Path) -> None:
    server.answer = CHANGED
    report = run_gate(policy(folder, server.url, IDENTITY))
    (suite,) = ET.fromstring(junit_xml(report))
    assert next((case.get("name"), case[0].tag) for case in suite) == ("identity", "system-out")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "0", "0")
    assert [line.split()[0] for line in annotation_lines(report)] == ["::warning"]


def test_a_dead_server_is_invalid_with_and_without_scores(folder: Path) -> None:
    for checks in (BASELINE, ""):
        head = 'identity = {record = "record.json"}'
        report = run_gate(policy(folder, "http://127.0.0.1:9", head, checks=checks))
        assert report.verdict == "invalid"
        assert ET.fromstring(junit_xml(report)).get("errors") == "1"
        assert "127.0.0.1:9" in gate_markdown(report)


def test_a_server_without_log_probabilities_is_refused_before_any_score(server: ScriptedServer, folder: Path) -> None:
    server.answer = SILENT
    with pytest.raises(UnsupportedTaskError, match="no log-probabilities"):
        run_gate(policy(folder, server.url, IDENTITY))
    assert asked_for_scores(server) == 0


def test_identity_takes_its_part_of_the_error_rate_where_it_can_decide(folder: Path) -> None:
    deciding = specifications(load_policy(policy(folder, "http://127.0.0.1:9", IDENTITY)))["main"]
    telling = specifications(load_policy(policy(folder, "http://127.0.0.1:9", IDENTITY.replace("true", "false"))))
    assert deciding.alpha == pytest.approx(0.009)
    assert telling["main"].alpha == 0.01


MINIMUM = BASELINE.replace('baseline = "base"\nmargin = 0.1', "min = 0.8")


@pytest.mark.parametrize(
    ("head", "checks", "message"),
    [
        (IDENTITY, MINIMUM, "cannot settle the check on counting, which has no baseline"),
        (IDENTITY, "", "has no check on scores"),
        ("alpha = 0.001\n" + IDENTITY, BASELINE, "leaves nothing for the checks"),
        ("identity = [{record = 'a'}, {record = 'b'}]", BASELINE, "2 identity checks"),
        ("identity = {record = 'a', model = 'mian'}", BASELINE, "did you mean that"),
        ("identity = {recrod = 'a'}", BASELINE, "no key 'recrod'; there is 'record'"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, head: str, checks: str, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        load_policy(policy(tmp_path, "http://127.0.0.1:9", head, checks))
