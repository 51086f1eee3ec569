"""``assay compare``: finished runs, document by document."""

from __future__ import annotations

import click

from assay.cli.remarks import remark_partial_runs

_RUN_HELP = "A run is a results file, a samples file, a baseline, or a folder (its newest run), last or last~1."


@click.command(
    short_help="Compare runs: differences with intervals, exact p-values, flipped answers.", epilog=_RUN_HELP
)
@click.argument("baseline", metavar="A")
@click.argument("candidates", nargs=-1, required=True, metavar="B [C…]")
@click.option("--task", "tasks", multiple=True, help="Only this task or group. May be repeated.", metavar="NAME")
@click.option("--flips", type=click.IntRange(min=0), default=6, show_default=True, help="Flipped answers to show.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, with all flipped answers.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
def compare(
    baseline: str, candidates: tuple[str, ...], tasks: tuple[str, ...], flips: int, as_json: bool, as_markdown: bool
) -> None:
    """Compare runs B, C, … with run A, on the documents that both scored. Assay's and lm-eval's runs alike.

    \b
    Example:
      assay compare results/old results/new
    """
    from assay.runs.compare import compare as compared
    from assay.runs.files import read_run

    remark_partial_runs(baseline, *candidates)
    first = read_run(baseline)
    comparisons = [compared(first, candidate, tasks=tasks) for candidate in candidates]
    if as_json:
        from assay._util.json_text import json_line

        print(json_line(comparisons))
        return
    if as_markdown:
        from assay.reports.comparison import comparison_markdown

        print("\n".join(comparison_markdown(comparison, flips) for comparison in comparisons), end="")
        return
    from assay.cli.consoles import OutputConsole
    from assay.reports.comparison import comparison_text

    console = OutputConsole()
    for comparison in comparisons:
        console.print(comparison_text(comparison, flips))
        console.print()
