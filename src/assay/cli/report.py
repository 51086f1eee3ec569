"""``assay report``: a finished run as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli.remarks import remark_partial_runs

_RUN_HELP = (
    "A run is a results file, a samples file, or last or last~1 (DIR/last in another folder), or a folder: its only "
    "run, an index of several, with --baseline its newest."
)


@click.command(short_help="A finished run, or an index of several, as HTML.", epilog=_RUN_HELP)
@click.argument("run", metavar="RUN")
@click.option("--baseline", help="An earlier run to compare with: a run, or a saved baseline.", metavar="RUN")
@click.option("--open", "open_it", is_flag=True, help="Open it in the browser.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; else report_<time>.html beside the results, or index.html in the folder.",
    metavar="FILE",
)
def report(run: str, baseline: str | None, open_it: bool, output: Path | None) -> None:
    """Write the report of a finished run, Assay's or lm-eval's: one file that opens from disk and asks no network.

    Of a folder with several runs: an index of their scores, newest first, each linked to its report.

    \b
    Example:
      assay report results
      assay report results/my-model --baseline baselines/my-model.json --open
    """
    file = _written(run, baseline, output)
    print(file)
    if open_it:
        import webbrowser

        webbrowser.open(file.resolve().as_uri())


def _written(run: str, baseline: str | None, output: Path | None) -> Path:
    from assay.runs.files import results_files

    if baseline is None and Path(run).is_dir() and len(results_files(Path(run))) > 1:
        from assay.reports.index_page import write_index

        return write_index(Path(run), output)
    from assay.reports.html import report as write

    remark_partial_runs(run, baseline)
    return write(run, baseline=baseline, output=output)
