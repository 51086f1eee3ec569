"""A triage in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from assay._util.text import printable
from assay.reports.waterfall import steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from assay.diagnosis import Finding, Triage

_LENGTH = 600


def triage_text(triage: Triage) -> RenderableType:
    """The headline, then every finding with its figures, examples and what to do."""
    return Group(
        Text(printable(triage.headline, _LENGTH), style="bold"),
        Text(printable(_subject(triage), _LENGTH), style="dim"),
        *_waterfall_lines(triage),
        *(line for finding in triage.findings for line in _finding_lines(finding)),
    )


def _subject(triage: Triage) -> str:
    metrics = sorted(set(triage.metrics.values()))
    score = "no score" if triage.score is None else f"score {triage.score:.4f}"
    words = f"{triage.samples} samples, {score}" + (f" ({', '.join(metrics)})" if metrics else "")
    if triage.baseline_score is not None:
        words += f"; baseline {triage.baseline_score:.4f} ({triage.baseline})"
    return words


def _waterfall_lines(triage: Triage) -> Iterator[RenderableType]:
    """From the score to what it should be, a line for each cause."""
    lines = steps(triage.waterfall)
    if lines:
        yield Text()
    for step in lines:
        yield Text(f"{step.figure:>8}  {step.words}")


def _finding_lines(finding: Finding) -> Iterator[RenderableType]:
    yield Text()
    kind = "cause " if finding.is_cause else "remark"
    title = f"{kind}  {finding.title} ({finding.confidence})"
    yield Text(title, style="bold" if finding.is_cause else "")
    yield Text(f"        {printable(finding.evidence, _LENGTH)}")
    if finding.explains is not None and finding.score_repaired is not None:
        without = "" if finding.score_without is None else f", without these samples {finding.score_without:.4f}"
        about = "" if finding.is_measured else "about "
        yield Text(f"        score {finding.score:.4f}, repaired {about}{finding.score_repaired:.4f}{without}")
    for example in finding.examples:
        shown = f": {printable(example.shown)}" if example.shown else ""
        yield Text(f"        e.g. {printable(example.task)} {example.doc_id}{shown}", style="dim")
    yield Text(f"        -> {printable(finding.advice, _LENGTH)}")
