"""A gate's outcome as JUnit XML: one suite a model, one case a check, identity's among them."""

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
    _count(root, [verdict for model in report.models for verdict in _verdicts(model)])
    ET.indent(root)
    encoded: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return encoded + b"\n"


def _suite(model: ModelOutcome) -> ET.Element:
    suite = ET.Element("testsuite", name=_plain(f"{model.name} ({model.model})"), time=f"{model.seconds:.3f}")
    _count(suite, _verdicts(model))
    if (identity := _identity_verdict(model)) is not None:
        suite.append(_identity_case(model, identity))
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


def _verdicts(model: ModelOutcome) -> list[Verdict]:
    identity = _identity_verdict(model)
    return [*([] if identity is None else [identity]), *(check.verdict for check in model.checks)]


def _identity_verdict(model: ModelOutcome) -> Verdict | None:
    """As the case shows it: a finding that leaves the decision to the scores passes. None if there is no case."""
    if model.identity is None:
        return Verdict.INVALID if model.error is not None and not model.checks else None
    return model.identity.verdict if model.identity.decides else Verdict.PASS


def _identity_case(model: ModelOutcome, verdict: Verdict) -> ET.Element:
    case = ET.Element("testcase", classname=_plain(f"assay.{model.name}"), name="identity")
    words = _plain(model.error or "" if model.identity is None else model.identity.words)
    if verdict is Verdict.PASS:
        ET.SubElement(case, "system-out").text = words
    else:
        ET.SubElement(case, "failure" if verdict is Verdict.FAIL else "error", type=verdict, message=words)
    return case


def _details(model: ModelOutcome, check: CheckResult) -> str:
    place = f"; results in {model.results_file}" if model.results_file else ""
    said = f"{check.task} {check.metric} {check.demand}: {check.reason}; {model.base_url}{place}"
    return f"{check.verdict}: {said}{_why(model)}"


def _why(model: ModelOutcome) -> str:
    return "".join(f"; {words}" for words in (*remarks_on(model), model.triage) if words)


def _count(element: ET.Element, verdicts: list[Verdict]) -> None:
    element.set("tests", str(len(verdicts)))
    element.set("failures", str(verdicts.count(Verdict.FAIL)))
    element.set("errors", str(verdicts.count(Verdict.INVALID) + verdicts.count(Verdict.INCONCLUSIVE)))


def _plain(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return printable(text, _MESSAGE)
