"""``assay calibrate``: how much a server's scores differ from run to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from assay._util.text import printable
from assay.cli.lm_eval_options import RunCommand
from assay.cli.remarks import remark
from assay.cli.run import run, specification_of
from assay.types import USUAL_ALPHA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.gate.calibrate import Calibration, Noise

_WITHOUT_CHECKS = {
    "minimums": (),
    "maximums": (),
    "ranges": (),
    "stop_early": False,
    "alpha": USUAL_ALPHA,
    "retry_failed": False,
    "probe": False,
    "triage": False,
}
"""Options of ``assay run`` that ``calibrate`` does not have."""
_HEADINGS = ("task", "metric", "n", "scores", "flips", "deviation", "at most", "margin")
_NOTES = """
flips: share of documents whose score changes from one run to the next
deviation: standard deviation of the difference between two runs' scores; at most: its upper limit
margin: three times that limit, and at least what one answer can cost
        (an unchanged server fails it in about 1 % of gates at most)"""
_NOT_ITS_OWN = _WITHOUT_CHECKS.keys() | {"as_json", "report", "helm_dir"}


@click.command(cls=RunCommand, short_help="Run the same tasks several times: rerun noise, and the margin it suggests.")
@click.option("--runs", type=click.IntRange(min=2), default=3, show_default=True, help="How often.", metavar="K")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def calibrate(runs: int, as_json: bool, **options: Any) -> int:
    """Run the same tasks K times on the same server, and report how far the scores lie apart.

    The proposed margin leaves room for that noise, in the scale of the score and as a group weighs its tasks; give it
    to a baseline check. If it is interrupted, the same command goes on where it stopped; once it has printed its
    margins, it starts anew.

    \b
    Example:
      assay calibrate gsm8k_cot --base-url http://localhost:8000 --model my-model --runs 3
    """
    from assay.gate.calibrate import calibrate as measure
    from assay.reports.progress import show_progress

    on_result = _print_json if as_json else _print_table
    calibration = measure(specification_of(options | _WITHOUT_CHECKS), runs, show_progress(), on_result=on_result)
    if calibration.failed:
        remark(f"{calibration.failed} samples failed, and the margins are those of the others: exit code 4")
    return calibration.exit_code


def _print_json(calibration: Calibration) -> None:
    from assay._util.json_text import json_line

    print(json_line(calibration.noise), flush=True)


calibrate.params += [parameter for parameter in run.params if parameter.name not in _NOT_ITS_OWN]


def _print_table(calibration: Calibration) -> None:
    from rich.text import Text

    from assay.cli.consoles import OutputConsole
    from assay.reports.wide_tables import fitting_table

    rows = [
        (
            row.task,
            row.metric,
            str(row.n),
            ", ".join(f"{value:.4g}" for value in row.values),
            f"{row.flip_rate:.2%}",
            f"{row.deviation:.3g}",
            f"{row.deviation_at_most:.3g}",
            f"{row.margin:.2g}",
        )
        for row in calibration.noise
    ]
    console = OutputConsole()
    console.print(fitting_table(_HEADINGS, rows, names=2))
    console.print(Text(_NOTES, style="dim"))
    for line in advice_lines(calibration.noise):
        console.print(line, soft_wrap=True)


def advice_lines(noise: Sequence[Noise]) -> list[str]:
    """What to do with the margins, and which of them a small subtask makes wide."""
    lines = [
        f"{printable(row.task)} {printable(row.metric)}: {printable(row.mostly_of)} makes most of the noise, as its "
        "few documents count as much as the many of others; check the tasks one by one, or calibrate with more --runs"
        for row in noise
        if row.mostly_of is not None
    ]
    lines += [
        f"{printable(row.task)} {printable(row.metric)}: too few documents ({row.n}) for a margin, "
        f"as no server could fail {row.margin:g}; ask more documents, or calibrate with more --runs"
        for row in noise
        if row.met_by_any_score
    ]
    if noise:
        first = next((row for row in noise if not row.met_by_any_score), noise[0])
        if first.part is not None:
            lines.append(f"measured on {first.part}: the margins are for checks on just these, too wide for more")
        lines.append(
            f"in a policy's check with a baseline, write the margin of its task and metric, for example: "
            f'task = "{printable(first.task)}", metric = "{printable(first.metric)}", baseline = "…", '
            f"margin = {first.margin:.2g}"
        )
    return lines
