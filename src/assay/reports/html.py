"""A run as one HTML file: scores, evidence, outcomes, comparison, and every sample. It needs no network.

What models and servers said is data: it is escaped where the template writes it, and deflated and base64-encoded where
the script reads it. A Content-Security-Policy in the file lets nothing run but the file's own script, by its hash, and
forbids that script to make elements out of text.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay._util.json_text import as_json
from assay._util.storage import write_whole
from assay.diagnosis import triage
from assay.reports.endpoints import HEADINGS as ENDPOINT_HEADINGS
from assay.reports.page import has_samples, outline
from assay.reports.page_budget import BUDGET, deflated
from assay.reports.page_gathering import PageSamples
from assay.reports.page_wrong_answers import wrong_answers
from assay.reports.templates import environment, joined, policy
from assay.reports.waterfall import steps
from assay.results.reading import read_results
from assay.runs.samples import results_file_of
from assay.types import Outcome

if TYPE_CHECKING:
    from assay.diagnosis import Example, Triage
    from assay.reports.page import RunOutline
    from assay.reports.page_baseline import BaselineTexts
    from assay.reports.page_gathering import Gathering
    from assay.results.document import ResultsDocument
    from assay.runs.compare import Comparison

_STYLES = ("uPlot.min.css", "page.css", "samples.css")
_LIBRARY = "uPlot.iife.min.js"
_SCRIPTS = ("data.js", "text.js", "plots.js", "filters.js", "list.js", "detail.js", "page.js")
"""Parts of one module, in this order."""


def report(run: str | Path, *, baseline: str | Path | None = None, output: str | Path | None = None) -> Path:
    """Write a finished run, Assay's or lm-eval's, as one HTML file with every sample.

    It opens from disk and needs no network.

    Args:
        run: a results file, a samples file or a folder of results (its newest run).
        baseline: an earlier run to compare with, or a saved baseline.
        output: the file to write; None: ``report_<time>.html`` beside the results.

    Returns:
        The file.

    Raises:
        FileFormatError: a file of the run or of the baseline is missing or damaged.
        SpecificationError: the baseline has no task of the run.
        OutputError: the report cannot be written.
    """
    return write_report(results_file_of(run), baseline=baseline, output=None if output is None else Path(output))


def write_report(
    results_file: Path,
    *,
    baseline: str | Path | None = None,
    output: Path | None = None,
    budget: int = BUDGET,
    gathered: Gathering | None = None,
) -> Path:
    """Write the report of a finished run.

    Args:
        results_file: Assay's or lm-eval's; samples files and journal are looked for beside it.
        baseline: an earlier run to compare with.
        output: the file to write; None: ``report_<time>.html`` beside the results.
        budget: characters that the samples' texts may take; they are cut to keep to it.
        gathered: what an earlier pass over the samples gathered; not used with a baseline.

    Returns:
        The report.

    Raises:
        FileFormatError: a file of the run or of the baseline is missing or damaged.
        SpecificationError: the baseline has no task of the run.
        OutputError: the report cannot be written.
    """
    file = output or report_file(results_file)
    page = _page(results_file, baseline, budget, gathered)
    return write_whole(file, page.encode("utf-8", "backslashreplace"))


def report_file(results_file: Path) -> Path:
    """The default path of a run's report."""
    return results_file.with_name(f"report_{results_file.stem.removeprefix('results_')}.html")


def _page(results_file: Path, baseline: str | Path | None, budget: int, gathering: Gathering | None) -> str:
    run = outline(results_file, document := read_results(results_file))
    comparison, texts, explanation = None, None, run.triage
    gathered = None if gathering is None else gathering.of(results_file)
    if baseline is not None:
        comparison, texts = _compare(results_file, baseline, run)
        explanation = triage(results_file, baseline, score_again=False)
    if gathered is None or baseline is not None:
        gathered = _gather(results_file, document, PageSamples(run, texts))
    packed, plots = gathered.packer.pack(budget), gathered.measured.plots()
    explanation = explanation if explanation is not None and explanation.findings else None
    style, library, script = joined(_STYLES), joined([_LIBRARY]), joined(_SCRIPTS)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            results_file=results_file.name,
            comparison=comparison,
            triage=explanation,
            waterfall=steps(None if explanation is None else explanation.waterfall),
            wrong=wrong_answers(gathered.packer, _telling(explanation), run.tasks_without_wrong()),
            packed=packed,
            figures=run.figures(gathered.measured),
            plots=plots,
            plot_words=gathered.measured.words(),
            data=deflated(as_json({**packed.index, "evidence": run.evidence, "plots": plots})),
            outcomes=tuple(Outcome),
            endpoint_headings=ENDPOINT_HEADINGS,
            style=style,
            library=library,
            script=script,
            policy=policy([library, script], style),
        )
    )


def _telling(explanation: Triage | None) -> tuple[Example, ...]:
    """The samples that show the likeliest cause."""
    return explanation.causes[0].examples if explanation is not None and explanation.causes else ()


def _gather(results_file: Path, document: ResultsDocument, gathered: PageSamples) -> PageSamples:
    from assay.runs.samples import RunSamples

    if has_samples(results_file, document.configs):
        with RunSamples(results_file) as samples:
            for sample in samples:
                gathered.add(sample)
    return gathered


def _compare(results_file: Path, baseline: str | Path, run: RunOutline) -> tuple[Comparison, BaselineTexts]:
    from assay.reports.page_baseline import BaselineTexts
    from assay.runs.compare import compare
    from assay.runs.files import read_run

    before, after = read_run(baseline), read_run(results_file)
    comparison = compare(before, after)
    return comparison, BaselineTexts(before, after, comparison, run.chosen_keys())
