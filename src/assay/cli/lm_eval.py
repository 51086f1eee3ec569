"""``assay lm-eval``: lm-eval's own command line, run by Assay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from assay.lm_eval_command.translation import Translation


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run lm_eval's own command line, as it is.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def lm_eval(arguments: tuple[str, ...]) -> int:
    """Take lm_eval's command line as it is: what follows `lm_eval` there follows `assay lm-eval` here."""
    from assay.cli.remarks import remark
    from assay.lm_eval_command.parsing import RunArguments, parse
    from assay.lm_eval_command.translation import translate

    parsed = parse(arguments)
    if not isinstance(parsed, RunArguments):
        parsed()
        return 0
    translation = translate(parsed)
    remark(*translation.remarks)
    return _run(translation)


def _run(translation: Translation) -> int:
    from assay.cli.run import run_and_present
    from assay.lm_eval_command.output import copy_to

    def afterwards(results_file: Path) -> None:
        if translation.results_name is not None:
            copy_to(translation.results_name, results_file)
        if translation.show_config:
            print(results_file.read_text(encoding="utf-8"))

    return run_and_present(translation.specification, with_report=translation.report, afterwards=afterwards)
