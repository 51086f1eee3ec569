"""GitHub Actions: a step summary, and annotations on the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay._util.storage import write_error
from assay._util.text import printable
from assay.reports.gate import gate_markdown
from assay.results.check_results import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.gate.run import GateReport

_LEVELS = {Verdict.FAIL: "error", Verdict.INVALID: "error", Verdict.INCONCLUSIVE: "warning"}
_MESSAGE = 1000


def is_github_actions(environment: Mapping[str, str]) -> bool:
    """Whether this process is a step of a GitHub Actions workflow."""
    return environment.get("GITHUB_ACTIONS") == "true"


def write_step_summary(report: GateReport, environment: Mapping[str, str]) -> None:
    """Append the report to the step's summary page, if there is one.

    Raises:
        OutputError: the file cannot be written.
    """
    file = environment.get("GITHUB_STEP_SUMMARY")
    if not file:
        return
    try:
        with open(file, "a", encoding="utf-8") as summary:
            summary.write(gate_markdown(report) + "\n")
    except OSError as error:
        raise write_error(f"cannot write the step summary {file}", error) from error


def annotation_lines(report: GateReport) -> list[str]:
    """Workflow commands, one for each check that did not pass, and one for each model that passed with a fault.

    One more for each that is not, or not surely, the recorded model.
    """
    lines = [
        f"::{_LEVELS[check.verdict]} title={_property(f'assay: {model.name} {check.task} {check.verdict}')}"
        f"::{_message(f'{check.metric} {check.demand}: {check.reason}')}"
        for model, check in report.checks
        if check.verdict in _LEVELS
    ]
    lines += [
        f"::warning title={_property(f'assay: {model.name}')}::{_message(model.triage)}"
        for model in report.models
        if model.triage is not None and all(check.verdict is Verdict.PASS for check in model.checks)
    ]
    for model in report.models:
        if model.identity is not None and model.identity.verdict in _LEVELS:
            level = _LEVELS[model.identity.verdict] if model.identity.decides else "warning"
            title, words = f"assay: {model.name} identity", model.identity.words
        elif model.error is not None and not model.checks:
            level, title, words = "error", f"assay: {model.name} identity invalid", model.error
        else:
            continue
        lines.append(f"::{level} title={_property(title)}::{_message(words)}")
    return lines


def _message(text: str) -> str:
    """`text` on one line, escaped so that it cannot end the command or begin another."""
    return printable(text, _MESSAGE).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
