"""Several answers to each document, asked for on the command line and in a policy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.test_run import assay
from tests.evaluation.test_repeats import TASKS, Varying
from tests.servers.scripted import ScriptedServer

POLICY = """
stop_early = {stop_early}
[options]
repeats = 4
include_path = "{tasks}"
[models.main]
base_url = "{url}"
model = "m"
[[checks]]
task = "asked"
metric = "exact_match_avg@4,number"
min = 0.6
[[checks]]
task = "asked"
metric = "exact_match_pass@4,number"
min = 0.6
[[checks]]
task = "asked"
metric = "exact_match_maj@4,number"
min = 0.6
"""


def test_the_table_tells_of_all_answers_and_a_minimum_demands_them(tmp_path: Path) -> None:
    with ScriptedServer(answer=Varying("rr12"), models=["m"]) as server:
        ran = assay(
            *("run", "asked", "--base-url", server.url, "--model", "m", "--include-path", str(TASKS)),
            *("--repeats", "4", "--concurrency", "1", "--no-probe", "--gen-kwargs", "temperature=0"),
            *("--min", "exact_match_avg@4,number=0.5", "--min", "exact_match_pass@2,number=0.9"),
            cwd=tmp_path,
        )
        assert len(server.answered) == 48
    assert ran.returncode == 1, ran.stderr
    assert re.findall(r"(exact_match\S*),number +([0-9.]+)", ran.stdout.partition("PASS")[0]) == [
        ("exact_match", "1.0000"),
        ("exact_match_avg@4", "0.5000"),
        ("exact_match_pass@1", "0.5000"),
        ("exact_match_pass@2", "0.8333"),
        ("exact_match_pass@4", "1.0000"),
        ("exact_match_maj@4", "1.0000"),
    ]
    assert "PASS  asked exact_match_avg@4,number: 0.5000 >= 0.5" in ran.stdout
    assert "FAIL  asked exact_match_pass@2,number: 0.8333 < 0.9" in ran.stdout
    assert "the 4 answers to each document of asked can hardly differ: the temperature is 0" in ran.stderr
    (page,) = (tmp_path / "results" / "m").glob("report_*.html")
    assert "exact_match_avg@4,number" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("stop_early", ["true", "false"])
def test_a_gate_demands_them(tmp_path: Path, stop_early: str) -> None:
    with ScriptedServer(answer=Varying("rr12"), models=["m"]) as server:
        policy = POLICY.format(stop_early=stop_early, tasks=TASKS, url=server.url)
        (tmp_path / "gate.toml").write_text(policy, encoding="utf-8")
        ran = assay("gate", "gate.toml", cwd=tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert re.findall(r"^([A-Z]+)  asked (\S+),number", ran.stdout, re.MULTILINE) == [
        ("FAIL", "exact_match_avg@4"),
        ("PASS", "exact_match_pass@4"),
        ("PASS", "exact_match_maj@4"),
    ]
