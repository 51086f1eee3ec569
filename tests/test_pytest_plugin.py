"""The pytest plugin, in pytest runs of their own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.servers.scripted import ScriptedServer

KEY = "exact_match,get-answer"
TASKS = Path(__file__).parent / "evaluation_tasks"


@pytest.fixture
def server() -> Any:
    def right(body: dict[str, Any]) -> str:
        question = body["messages"][-1]["content"]
        return f"The answer is {sum(int(word) for word in question.split() if word.isdigit())}"

    with ScriptedServer(answer=right, models=["scripted"]) as running:
        yield running


def run_pytest(folder: Path, test: str, *arguments: str) -> tuple[int, str]:
    (folder / "test_quality.py").write_text(f"import pytest\n\n{test}")
    is_installed = any(point.value == "assay.pytest_plugin" for point in entry_points(group="pytest11"))
    plugin = [] if is_installed else ["-p", "assay.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert "INTERNALERROR" not in done.stdout + done.stderr
    return done.returncode, done.stdout


def configure(folder: Path, url: str) -> None:
    (folder / "pytest.ini").write_text(
        f"[pytest]\nassay_base_url = {url}\nassay_model = scripted\nassay_include_path = {TASKS}\n"
        f"addopts = --strict-markers\nfilterwarnings = error\n"
    )


MARKED = f"""
@pytest.mark.assay(task="counting", metric="{KEY}", min=0.8)
def test_counting(request):
    request.config._body_ran = True
"""


def test_a_marked_test_passes_and_fails(server: ScriptedServer, tmp_path: Path) -> None:
    configure(tmp_path, server.url)
    code, out = run_pytest(tmp_path, MARKED)
    assert (code, "1 passed" in out) == (0, True), out
    server.answer = lambda body: "The answer is 7"
    code, out = run_pytest(tmp_path, MARKED, "--junit-xml=out.xml")
    assert code == 1
    assert "assay gate: fail" in out
    assert f"FAIL         counting {KEY} >= 0.8" in out
    assert " of 60 documents: below 0.8" in out
    assert "  stopped early: " in out
    assert "  triage: " in out
    assert "Traceback" not in out
    assert "Captured" not in out
    assert "pytest_plugin.py" not in out
    failure = ET.parse(tmp_path / "out.xml").getroot().find(".//failure")
    assert failure is not None
    assert "assay gate: fail" in str(failure.text)


def test_several_addresses_are_replicas(server: ScriptedServer, tmp_path: Path) -> None:
    with ScriptedServer(answer=server.answer, models=["scripted"], latency=0.005) as other:
        server.latency = 0.005
        configure(tmp_path, f"\n  {server.url}\n  {other.url}")
        code, out = run_pytest(tmp_path, MARKED)
        assert (code, "1 passed" in out) == (0, True), out
        assert server.count > 4
        assert other.count > 4


def test_the_fixture_runs_a_policy_and_gives_its_report(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "gate.toml").write_text(
        f'[options]\ninclude_path = "{TASKS}"\n[models.main]\nbase_url = "http://127.0.0.1:9"\nmodel = "scripted"\n'
        f'[[checks]]\ntask = "counting"\nmetric = "{KEY}"\nmin = 0.8\n'
    )
    test = """
def test_release(assay_gate):
    report = assay_gate("gate.toml")
    assert report.verdict == "pass"
    assert report.models[0].checks[0].value == 1.0
"""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    code, out = run_pytest(tmp_path, test)
    assert code == 1
    assert "assay gate: invalid" in out
    assert "nothing answers at http://127.0.0.1:9" in out
    code, out = run_pytest(tmp_path, test, f"--assay-base-url={server.url}")
    assert code == 0, out


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        (f'task="counting", metric="{KEY}", minn=0.8', "there is no key 'minn'; there is 'min'"),
        ('task="counting", metric="acc", min=0.8', "no metric 'acc' in counting"),
        ("", "name a policy file"),
        ('"none.toml"', "there is no policy file"),
    ],
)
def test_what_makes_no_sense_fails_with_a_reason(
    server: ScriptedServer, tmp_path: Path, mark: str, message: str
) -> None:
    configure(tmp_path, server.url)
    code, out = run_pytest(tmp_path, f"@pytest.mark.assay({mark})\ndef test_it(): ...\n")
    assert code == 1
    assert message in out.replace("\n", " ")
    assert "During handling" not in out
    assert server.requests == []


def test_without_a_server_it_says_what_is_missing(tmp_path: Path) -> None:
    code, out = run_pytest(tmp_path, MARKED)
    assert code == 1
    assert "set assay_base_url and assay_model in pytest's configuration, or pass --assay-base-url" in out
