"""A gate's outcome as JUnit XML: one suite a model, one case a check."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from assay._util.text import printable
from assay.reports.remarks import remarks_on
from assay.results.check_results import Verdict

if TYPE_CHECKING:
    from assay.gate.run import GateReport, ModelOutcome
    from assay.results.check_results import CheckResult

_MESSAGE = 2000
"""Characters kept of a message."""


def junit_xml(report: GateReport) -> bytes:
    """The whole file.

    A check that does not pass is a ``failure``; one that could not be judged, or not yet, is an ``error``.
    """
    root = ET.Element("testsuites", name=f"assay gate {_plain(report.policy)}")
    for model in report.models:
        root.append(_suite(model))
    _count(root, [check for _, check in report.checks])
    ET.indent(root)
    encoded: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return encoded + b"\n"


def _suite(model: ModelOutcome) -> ET.Element:
    suite = ET.Element("testsuite", name=_plain(f"{model.name} ({model.model})"), time=f"{model.seconds:.3f}")
    _count(suite, list(model.checks))
    for check in model.checks:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_plain(f"assay.{model.name}.{check.task}"),
            name=_plain(f"{check.metric} {check.demand}"),
            time=f"{model.seconds / max(len(model.checks), 1):.3f}",
        )
        if check.verdict is Verdict.PASS:
            ET.SubElement(case, "system-out").text = _plain(f"{check.reason}{_why(model)}")
            continue
        kind = "failure" if check.verdict is Verdict.FAIL else "error"
        element = ET.SubElement(case, kind, type=check.verdict, message=_plain(check.reason))
        element.text = _plain(_details(model, check))
    return suite


def _details(model: ModelOutcome, check: CheckResult) -> str:
    place = f"; results in {model.results_file}" if model.results_file else ""
    said = f"{check.task} {check.metric} {check.demand}: {check.reason}; {model.base_url}{place}"
    return f"{check.verdict}: {said}{_why(model)}"


def _why(model: ModelOutcome) -> str:
    return "".join(f"; {words}" for words in (*remarks_on(model), model.triage) if words)


def _count(element: ET.Element, checks: list[CheckResult]) -> None:
    element.set("tests", str(len(checks)))
    element.set("failures", str(sum(check.verdict is Verdict.FAIL for check in checks)))
    element.set("errors", str(sum(check.verdict in (Verdict.INVALID, Verdict.INCONCLUSIVE) for check in checks)))


def _plain(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return printable(text, _MESSAGE)
