"""A gate's outcome in the terminal and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from assay._util.text import printable
from assay.reports.markdown import escaped, table
from assay.reports.remarks import remarks_on
from assay.reports.table import check_lines
from assay.results.check_results import Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.gate.run import GateReport
    from assay.results.check_results import CheckResult
    from assay.types import StoppedEarly

_SIGNS = {Verdict.PASS: "✅", Verdict.FAIL: "❌", Verdict.INCONCLUSIVE: "⚠️", Verdict.INVALID: "⚠️"}
_REMARK = 800
"""Characters shown of why a run may have scored low."""
_HEADINGS = ("", "task", "metric", "demanded", "measured", "documents", "why")


def gate_text(report: GateReport) -> RenderableType:
    """For the terminal."""
    lines: list[RenderableType] = []
    for model in report.models:
        lines.append(Text(printable(f"{model.name}: {model.model} at {model.base_url}"), style="bold"))
        if model.identity is not None:
            lines.append(Text(printable(f"identity: {model.identity.words}", _REMARK)))
        elif model.error is not None and not model.checks:
            lines.append(Text(printable(f"identity: invalid: {model.error}", _REMARK)))
        if model.checks:
            lines.append(check_lines(model.checks))
        if model.stopped_early is not None:
            lines.append(Text(asked_words(model.stopped_early), style="dim"))
        lines += [Text(remark, style="yellow") for remark in remarks_on(model)]
        if model.triage is not None:
            lines.append(Text(printable(model.triage, _REMARK), style="yellow"))
        if model.results_file is not None:
            lines.append(Text(f"results  {printable(model.results_file)}"))
        lines.append(Text())
    return Group(*lines, Text(f"gate: {report.verdict}", style="bold"))


def gate_markdown(report: GateReport) -> str:
    """For a step summary or a comment on a pull request."""
    lines = [f"### {_SIGNS[report.verdict]} Assay gate: {report.verdict}", ""]
    for model in report.models:
        lines += [f"**{escaped(model.name)}**: {escaped(model.model)} at {escaped(model.base_url)}", ""]
        if model.identity is not None:
            sign = f"{_SIGNS[model.identity.verdict]} " if model.identity.decides else ""
            lines += [f"{sign}identity: {escaped(model.identity.words, _REMARK)}", ""]
        elif model.error is not None and not model.checks:
            lines += [f"{_SIGNS[Verdict.INVALID]} identity: invalid: {escaped(model.error, _REMARK)}", ""]
        if model.checks:
            lines += table(_HEADINGS, [_row(check) for check in model.checks])
        if model.stopped_early is not None:
            lines += ["", escaped(asked_words(model.stopped_early), 400)]
        for remark in remarks_on(model):
            lines += ["", escaped(remark, _REMARK)]
        if model.triage is not None:
            lines += ["", escaped(model.triage, _REMARK)]
        lines.append("")
    return "\n".join(lines)


def asked_words(stopped: StoppedEarly) -> str:
    """How much of the benchmark was asked."""
    return (
        f"stopped early: {stopped.documents} of {stopped.population} documents judged, {stopped.asked} asked, "
        f"in random order (seed {stopped.order_seed}); these are not full-run scores"
    )


def measured(check: CheckResult) -> str:
    """The check's figure with its interval; after an early stop the interval first, as the figure is no score."""
    figure = check.value if check.difference is None else check.difference
    if figure is None:
        return "–"
    sign = "" if check.difference is None else "+"
    interval = check.interval
    if interval is not None and check.n < check.population:
        return f"{interval.low:{sign}.4f} – {interval.high:{sign}.4f} ({figure:{sign}.4f} so far)"
    return f"{figure:{sign}.4f}" + (f" ({interval.low:{sign}.4f} – {interval.high:{sign}.4f})" if interval else "")


def _row(check: CheckResult) -> tuple[str, ...]:
    documents = f"{check.n} of {check.population}" if check.population else "–"
    sign = f"{_SIGNS[check.verdict]} {check.verdict}"
    return (sign, check.task, check.metric, check.demand, measured(check), documents, check.reason)
