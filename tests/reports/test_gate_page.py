"""A gate's outcome as one HTML page."""

from __future__ import annotations

import html
import re
from pathlib import Path

from assay.diagnosis import Cause, Triage
from assay.diagnosis.findings import CauseShare, LossReference, Waterfall
from assay.gate.run import GateReport, ModelOutcome
from assay.reports.gate_page import write_gate_page
from assay.results.check_results import CheckResult, Verdict
from tests.reports.test_html import with_assays_part
from tests.result_files import KEY, write_run


def _outcome(name: str, verdict: Verdict, results_file: Path | None, triage: str | None = None) -> ModelOutcome:
    check = CheckResult(task="t", metric=KEY, min=0.75, value=0.5, verdict=verdict, reason="because & so")
    return ModelOutcome(
        name=name,
        model=f"org/{name}",
        base_url="http://a:1",
        checks=(check,),
        results_file=None if results_file is None else str(results_file),
        triage=triage,
    )


def _page(folder: Path, *outcomes: ModelOutcome) -> str:
    file = folder / "gate.html"
    return write_gate_page(GateReport(policy="gate.toml", verdict=Verdict.FAIL, models=outcomes), file).read_text()


def test_every_model_and_check_is_on_one_page_with_links_to_the_runs(tmp_path: Path) -> None:
    share = CauseShare(cause=Cause.TRUNCATED, title="cut", gain=0.25, low=0.0, high=0.5, is_measured=True)
    waterfall = Waterfall(score=0.5, shares=(share,), unexplained=0.0, target=0.75, target_is=LossReference.CHECK)
    found = Triage(samples=4, score=0.5, headline="cut", waterfall=waterfall)
    bad = with_assays_part(write_run(tmp_path / "the bad", {"t": [1.0, 0.0]}), triage=found.recorded)
    page = _page(
        tmp_path,
        _outcome("small<b>", Verdict.PASS, write_run(tmp_path / "good", {"t": [1.0, 1.0]})),
        _outcome("large", Verdict.FAIL, bad, triage="most probable cause: cut"),
        _outcome("gone", Verdict.INVALID, None),
    )
    assert re.findall(r'class="verdict (\w+)"', page) == ["fail", "pass", "fail", "invalid"]
    assert page.count("demanded &gt;= 0.75") == page.count("because &amp; so") == 3
    assert page.index("most probable cause: cut") < page.index("cut (measured, 0.0000 to 0.5000)")
    assert page.count('<table class="waterfall"') == 1
    links = [html.unescape(link) for link in re.findall(r'<a href="([^#"][^"]*)"', page)]
    assert links == [f"{place}/report_2026-01-01T00-00-00.000001.html" for place in ("good", "the%20bad")]
    assert (tmp_path / "the bad" / "report_2026-01-01T00-00-00.000001.html").exists()
    assert "small<b>" not in page


def test_a_run_that_cannot_be_read_keeps_its_verdict_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "results_2026-01-01T00-00-00.000001.json"
    file.write_text("{")
    page = _page(tmp_path, _outcome("one", Verdict.PASS, file))
    assert "no report was written: cannot read" in page
    assert 'class="verdict pass"' in page


def test_the_page_runs_no_script(tmp_path: Path) -> None:
    page = html.unescape(_page(tmp_path, _outcome("one", Verdict.PASS, None)))
    assert "script-src 'none'" in page
    assert "<script" not in page


def test_a_figure_of_a_part_is_said_to_be_one(tmp_path: Path) -> None:
    check = CheckResult(
        task="t", metric=KEY, min=0.75, value=0.5, verdict=Verdict.FAIL, reason="", n=18, population=100
    )
    part = ModelOutcome(name="one", model="m", base_url="http://a:1", checks=(check,))
    assert "so far," in _page(tmp_path, part)
    assert "so far," not in _page(tmp_path, _outcome("one", Verdict.FAIL, None))
