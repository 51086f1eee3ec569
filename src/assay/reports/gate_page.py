"""A gate's outcome as one HTML page: every model and check, each model linked to the report of its run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from assay._util.storage import write_whole
from assay.errors import AssayError
from assay.reports.gate import asked_words
from assay.reports.html import write_report
from assay.reports.page import outline
from assay.reports.remarks import remarks_on
from assay.reports.templates import environment, joined, policy
from assay.reports.waterfall import steps
from assay.results.reading import read_results

if TYPE_CHECKING:
    from assay.gate.run import GateReport, ModelOutcome
    from assay.reports.page import RunOutline
    from assay.reports.waterfall import Step

_STYLES = ("page.css",)


class JudgedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as the page shows it."""

    model: ModelOutcome
    identity: str | None
    """What the identity check found; None if there was none."""
    stopped: str | None
    """How much was asked, if its run stopped early."""
    remarks: list[str]
    run: RunOutline | None = None
    """None if it was not evaluated."""
    waterfall: list[Step] = []
    report: str | None = None
    """The address of its run's report, from the page."""


def write_gate_page(report: GateReport, file: Path) -> Path:
    """Write a gate's outcome as a page, and the report of each model's run beside its results.

    A run whose report cannot be written is shown with the reason.

    Args:
        report: the outcome.
        file: the page.

    Returns:
        The page.

    Raises:
        OutputError: the page cannot be written.
    """
    style = joined(_STYLES)
    page = (
        environment()
        .get_template("gate.html.j2")
        .render(
            report=report,
            models=[_judged(model, file.parent) for model in report.models],
            style=style,
            policy=policy([], style),
        )
    )
    return write_whole(file, page.encode("utf-8", "backslashreplace"))


def _judged(model: ModelOutcome, place: Path) -> JudgedModel:
    identity = None if model.identity is None else model.identity.words
    if identity is None and model.error is not None and not model.checks:
        identity = f"invalid: {model.error}"
    judged = JudgedModel(
        model=model,
        identity=identity,
        stopped=None if model.stopped_early is None else asked_words(model.stopped_early),
        remarks=list(remarks_on(model)),
    )
    if model.results_file is None:
        return judged
    results = Path(model.results_file)
    try:
        run = outline(results, read_results(results))
        written = write_report(results)
    except AssayError as error:
        return msgspec.structs.replace(judged, remarks=[*judged.remarks, f"no report was written: {error}"])
    return msgspec.structs.replace(
        judged,
        run=run,
        waterfall=steps(None if run.triage is None else run.triage.waterfall),
        report=quote(os.path.relpath(written, place)),
    )
