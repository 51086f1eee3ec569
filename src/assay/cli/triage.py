"""``assay triage``: why a run scored low."""

from __future__ import annotations

import click

from assay.cli.remarks import remark_partial_runs

_RUN_HELP = "A run is a results or samples file, a folder (its newest run), last or last~1; Assay's or lm-eval's."


@click.command(short_help="Say why a run scored low: the model, or the harness?", epilog=_RUN_HELP)
@click.argument("run")
@click.option(
    "--baseline",
    help="An earlier run of the same tasks, or a baseline file (default: what the run's checks name).",
    metavar="RUN",
)
@click.option("--task", "tasks", multiple=True, help="Only this task. May be repeated.", metavar="NAME")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def triage(run: str, baseline: str | None, tasks: tuple[str, ...], as_json: bool) -> None:
    """Say why RUN scored low: the most probable cause in the first line, then all that was found.

    If other versions of the packages made the baseline, its answers are scored again to see what that alone changes.

    \b
    Example:
      assay triage results/my-model --baseline results/old
    """
    from assay.diagnosis import triage as explain

    remark_partial_runs(run, baseline)
    found = explain(run, baseline, tasks=tasks)
    if as_json:
        from assay._util.json_text import json_line

        print(json_line(found))
        return
    from assay.cli.consoles import OutputConsole
    from assay.reports.triage import triage_text

    console = OutputConsole()
    console.print(triage_text(found), soft_wrap=True)
