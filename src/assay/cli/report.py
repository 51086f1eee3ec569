"""``assay report``: a finished run as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli.remarks import remark_partial_runs

_RUN_HELP = "A run is a results file, a samples file, or a folder (its newest run), last or last~1."


@click.command(short_help="A finished run as one HTML file, with every sample.", epilog=_RUN_HELP)
@click.argument("run", metavar="RUN")
@click.option("--baseline", help="An earlier run to compare with: a run, or a saved baseline.", metavar="RUN")
@click.option("--open", "open_it", is_flag=True, help="Open it in the browser.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; else report_<time>.html beside the results.",
    metavar="FILE",
)
def report(run: str, baseline: str | None, open_it: bool, output: Path | None) -> None:
    """Write the report of a finished run, Assay's or lm-eval's: one file that opens from disk and asks no network.

    \b
    Example:
      assay report results/my-model --baseline baselines/my-model.json --open
    """
    from assay.reports.html import report as write

    remark_partial_runs(run, baseline)
    file = write(run, baseline=baseline, output=output)
    print(file)
    if open_it:
        import webbrowser

        webbrowser.open(file.resolve().as_uri())
