"""A baseline whose run asked a part of the documents: said as that, and never taken for changed data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from assay import diagnosis
from assay.cli import main
from assay.diagnosis import Cause
from assay.errors import BaselineMismatchError
from assay.evaluation import evaluate
from assay.gate.explain import explain
from assay.runs.compare import compare
from assay.runs.saving import save_baseline
from assay.types import Check, EarlyStopping, ModelSpec, Specification, TaskOptions
from tests.gate.conftest import KEY, TASKS, wrong
from tests.servers.scripted import ScriptedServer

LIMITED = "the baseline holds 20 of 60 documents (--limit 20)"


def specification(server: ScriptedServer, folder: Path, *checks: Check, **options: Any) -> Specification:
    stopping = EarlyStopping(order_seed=3) if options.pop("early", False) else None
    return Specification(
        tasks=("counting",),
        model=ModelSpec(base_url=server.url, model="scripted", concurrency=4),
        options=TaskOptions(include_path=str(TASKS), **options),
        checks=checks,
        early_stopping=stopping,
        output_dir=str(folder),
        probe=False,
    )


@pytest.mark.parametrize("early", [False, True])
def test_a_limited_baseline_of_a_whole_gate_is_refused_as_that(
    server: ScriptedServer, tmp_path: Path, early: bool
) -> None:
    limited = evaluate(specification(server, tmp_path / "before", limit=20))
    saved = tmp_path / "baseline.json"
    save_baseline(limited.results_file, saved)
    asked = server.count
    for file in (saved, limited.results_file):
        check = Check(metric=KEY, task="counting", baseline=str(file), margin=0.1)
        with pytest.raises(BaselineMismatchError, match=re.escape(LIMITED)):
            evaluate(specification(server, tmp_path / "after", check, early=early))
        with pytest.raises(BaselineMismatchError, match=re.escape(LIMITED)):
            list(explain("main", specification(server, tmp_path / "after", check, early=early)))
        assert server.count == asked
    check = Check(metric=KEY, task="counting", baseline=str(saved), margin=0.1)
    assert evaluate(specification(server, tmp_path / "same", check, limit=20)).checks[0].verdict == "pass"


def test_a_part_is_a_remark_of_triage_and_of_a_comparison(server: ScriptedServer, tmp_path: Path) -> None:
    limited = evaluate(specification(server, tmp_path / "limited", limit=20)).results_file
    demand = Check(metric=KEY, task="counting", min=0.1)
    stopped = evaluate(specification(server, tmp_path / "stopped", demand, early=True))
    assert stopped.stopped_early is not None
    partial = f"the baseline holds {stopped.stopped_early.documents} of 60 documents (stopped early)"
    server.answer = wrong
    whole = evaluate(specification(server, tmp_path / "whole")).results_file
    for baseline, words in ((limited, LIMITED), (stopped.results_file, partial)):
        triage = diagnosis.triage(whole, baseline)
        [remark] = [each for each in triage.findings if each.cause is Cause.BASELINE_PARTIAL]
        assert not remark.is_cause
        assert words in remark.evidence
        assert all(each.cause is not Cause.DATA_CHANGED for each in triage.findings)
        assert "--data-dir" not in remark.advice
        comparison = compare(baseline, whole)
        assert comparison.mismatches == {}
        assert f"counting: {words}" in comparison.remarks


@pytest.mark.parametrize("command", ["show", "triage", "score", "compare"])
def test_of_a_folder_whose_newest_run_was_stopped_early_the_newest_whole_one_is_named(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    whole = evaluate(specification(server, tmp_path)).results_file
    arguments = {"compare": [str(whole)], "show": ["--limit", "1"]}.get(command, [])
    named = f"{tmp_path}: the newest run there is "

    def said() -> str:
        with pytest.raises(SystemExit) as ended:
            main([command, str(tmp_path), *arguments])
        assert ended.value.code == 0
        return capsys.readouterr().err

    assert named not in said()
    demand = Check(metric=KEY, task="counting", min=0.1)
    stopped = evaluate(specification(server, tmp_path, demand, early=True)).results_file
    assert f"{named}{stopped}, which was stopped early; the newest whole run there is {whole}\n" in said()


def test_a_baseline_that_was_stopped_early_is_refused_with_the_newest_whole_run(
    server: ScriptedServer, tmp_path: Path
) -> None:
    whole = evaluate(specification(server, tmp_path)).results_file
    demand = Check(metric=KEY, task="counting", min=0.1)
    stopped = evaluate(specification(server, tmp_path, demand, early=True)).results_file
    for damaged in ("results_2020-01-01T00-00-00.000000.json", "results_2099-01-01T00-00-00.000000.json"):
        whole.with_name(damaged).write_text("{")
    against = Check(metric=KEY, task="counting", baseline=str(stopped), margin=0.1)
    with pytest.raises(BaselineMismatchError, match=re.escape(f"; the newest whole run there is {whole}")):
        evaluate(specification(server, tmp_path, against))
