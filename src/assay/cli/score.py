"""``assay score``: a finished run's answers, scored again without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from assay.cli.remarks import remark_partial_runs

if TYPE_CHECKING:
    from assay.rescoring.rescore import Rescored


@click.command(short_help="Score a run's answers again, without a server, and say what differs.")
@click.argument("run", metavar="RUN")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    help="Only this task of the run; with =NEW, its answers are scored by the task NEW. May be repeated.",
    metavar="NAME[=NEW]",
)
@click.option("--include-path", help="Folder with task YAML, in place of the run's; it may run code.", metavar="DIR")
@click.option(
    "--data-dir", envvar="ASSAY_DATA_DIR", show_envvar=True, help="Data sets, in place of the run's.", metavar="DIR"
)
@click.option("--output-dir", help="Keep results and samples files there; by default nothing is kept.", metavar="DIR")
@click.option("--flips", type=click.IntRange(min=0), default=6, show_default=True, help="Changed answers to show.")
@click.option("--exit-code", is_flag=True, help="End with 1 if any score differs, 4 if answers are lost.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def score(
    run: str,
    tasks: tuple[str, ...],
    include_path: str | None,
    data_dir: str | None,
    output_dir: str | None,
    flips: int,
    exit_code: bool,
    as_json: bool,
) -> int:
    """Score the answers in a run's journal again, as they would be scored now, and say what differs.

    RUN is a results file or a folder (its newest run), last or last~1. With other task YAML, a newer lm-eval or a newer
    Assay, this tells what the harness alone changes.

    \b
    Example:
      assay score results/my-model --task gsm8k_cot=my_gsm8k --include-path my_tasks
    """
    from assay.rescoring.rescore import score as score_again

    renamed = {name: new or name for name, _, new in (task.partition("=") for task in tasks)}
    remark_partial_runs(run)
    rescored = score_again(run, tasks=renamed, include_path=include_path, data_dir=data_dir, output_dir=output_dir)
    if as_json:
        from assay._util.json_text import json_line

        print(json_line(rescored))
    else:
        _show(rescored, flips)
    return rescored.exit_code if exit_code else 0


def _show(rescored: Rescored, flips: int) -> None:
    from assay.cli.consoles import OutputConsole
    from assay.reports.comparison import comparison_text
    from assay.reports.rescored import rescored_lines

    console = OutputConsole()
    if rescored.comparison is not None:
        console.print(comparison_text(rescored.comparison, flips))
        console.print()
    for line in rescored_lines(rescored):
        console.print(line, soft_wrap=True)
