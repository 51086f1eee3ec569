"""What a run's command shows: a table or JSON on stdout, remarks on stderr."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from assay._util.json_text import json_line
from assay._util.text import printable
from assay.cli import discard_stdout
from assay.cli.remarks import remark
from assay.errors import AssayError, NothingMeasuredError
from assay.results.failures import what_to_do

if TYPE_CHECKING:
    from pathlib import Path

    from assay.evaluation import Evaluation
    from assay.reports.page_gathering import Gathering

_FAILURES_SHOWN = 5


def report_beside(results_file: Path, gathered: Gathering | None = None) -> Path | None:
    """Write the run's HTML report beside its results; None, with a remark, if that fails: the run itself is done.

    Args:
        results_file: the run's.
        gathered: what has been gathered of its samples.
    """
    from assay.reports.html import write_report

    try:
        return write_report(results_file, gathered=gathered)
    except KeyboardInterrupt:
        reason = "interrupted"
    except Exception as error:
        reason = printable(f"{type(error).__name__}: {error}", 400)
    remark(f"no report was written ({reason}); the results are there, and assay report {results_file} tries again")
    return None


def write_helm_runs(results_file: Path, helm_dir: str) -> None:
    """Write the run for HELM's tools; a remark says where, or why that failed: the run itself is done."""
    from assay.helm.lm_eval_runs import export

    try:
        written = export(results_file, helm_dir)
    except Exception as error:
        reason = str(error) if isinstance(error, AssayError) else f"{type(error).__name__}: {error}"
        remark(
            f"the run was not completely written for HELM ({printable(reason, 400)}); the results are there, and "
            f"assay helm export {results_file} --output-dir {helm_dir} tries again"
        )
        return
    remark(f"{len(written)} {'run' if len(written) == 1 else 'runs'} for HELM in {written[0].parent}")


def present(evaluation: Evaluation, *, as_json: bool, report: Path | None = None) -> int:
    """Show a finished run.

    Args:
        evaluation: the run.
        as_json: instead of a table.
        report: its HTML report, where one was written.

    Returns:
        The exit code that its checks ask for; without checks 4 if samples failed, else 0.

    Raises:
        NothingMeasuredError: there are no checks and no sample has a score.
    """
    try:
        shown = json_line(_document(evaluation, report)) if as_json else _table(evaluation, report)
        print(shown, flush=True)
    except BrokenPipeError:
        discard_stdout()  # the exit code still tells the verdict
    _remark_failures(evaluation)
    _remark_triage(evaluation)
    if not evaluation.checks and not evaluation.is_measured:
        raise NothingMeasuredError(f"no sample could be scored; the failures are listed in {evaluation.results_file}")
    return evaluation.exit_code


def _document(evaluation: Evaluation, report: Path | None) -> dict[str, object]:
    keys = ("results", "groups", "n-shot", "n-samples", "versions", "assay")
    known = {key: evaluation.results[key] for key in keys if key in evaluation.results}
    files = {"results_file": str(evaluation.results_file)}
    return {**known, **files, **({"report_file": str(report)} if report else {})}


def _table(evaluation: Evaluation, report: Path | None) -> str:
    from assay.cli.consoles import OutputConsole
    from assay.reports.remarks import remarks
    from assay.reports.table import check_lines, correction_lines, score_table

    console = OutputConsole()
    with console.capture() as captured:
        console.print(score_table(evaluation.scores))
        for line in correction_lines(evaluation.corrections):
            console.print(line, soft_wrap=True)
        if evaluation.checks:
            console.print()
            console.print(check_lines(evaluation.checks))
        console.print()
        if endpoints := evaluation.document.additions.endpoints:
            from assay.reports.endpoints import endpoint_table

            console.print(endpoint_table(endpoints))
            console.print()
        if evaluation.stopped_early is not None:
            from assay.reports.gate import asked_words

            console.print(asked_words(evaluation.stopped_early), soft_wrap=True)
        for remark in remarks(evaluation.document):
            console.print(remark, soft_wrap=True)
        console.print(f"results  {evaluation.results_file}", soft_wrap=True)
        if report is not None:
            console.print(f"report   {report}", soft_wrap=True)
    return captured.get().rstrip("\n")


def _remark_triage(evaluation: Evaluation) -> None:
    from assay.diagnosis.remark import triage_remark

    if evaluation.triage is not None and (line := triage_remark(evaluation.triage)):
        remark(line)


def _remark_failures(evaluation: Evaluation) -> None:
    failures = evaluation.failures
    if not failures:
        return
    causes = ", ".join(f"{count} {cause}" for cause, count in Counter(f.cause for f in failures).most_common())
    how_many = "1 sample failed and has" if len(failures) == 1 else f"{len(failures)} samples failed and have"
    remark(f"{how_many} no score: {causes}")
    for failed in failures[:_FAILURES_SHOWN]:
        remark(f"  {failed.task} {failed.doc_id}: {printable(failed.message)}")
    if len(failures) > _FAILURES_SHOWN:
        remark(f"  … all are listed in {evaluation.results_file}")
    remark(what_to_do([failed.cause for failed in failures]))
    if not evaluation.checks and any(score.n for score in evaluation.scores):
        remark("no check (--min, --max) gave a verdict without them: exit code 4")
