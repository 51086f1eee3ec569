"""Options that the commands of ``assay helm`` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.helm.scoring.code import UnsafeCode

    Command = TypeVar("Command", bound=Callable[..., Any])


def _suite(_: click.Context, __: click.Parameter, value: str) -> str:
    if value in ("", ".", "..") or "/" in value:
        raise click.BadParameter(f"{value!r} is no name of a directory")
    return value


_OUTPUT = (
    click.option(
        "--output-dir",
        type=click.Path(path_type=Path),
        default=Path("benchmark_output"),
        show_default=True,
        help="HELM's output path; what is written goes to runs/SUITE/ in it.",
        metavar="DIR",
    ),
    click.option(
        "--suite", default="assay", show_default=True, callback=_suite, help="HELM's suite of runs.", metavar="NAME"
    ),
)
_ALLOW_FEWER = click.option(
    "--allow-fewer", is_flag=True, help="Replace statistics that are there, even by fewer of them."
)
_METRICS = (
    click.option("--first-metric-only", is_flag=True, help="Compute only the run's first metric, as FlexLLMGen does."),
    click.option(
        "--confirm-run-unsafe-code",
        is_flag=True,
        help="Allow the scores that run what the model wrote (pass, code_eval_acc); it is run in a sandbox.",
    ),
    click.option(
        "--code-tests",
        type=click.Path(path_type=Path),
        help="HumanEval.jsonl, which the tests are in.  [default: where HELM keeps it, seen from the run's directory]",
        metavar="FILE",
    ),
    click.option(
        "--parallelism", type=click.IntRange(min=1), default=4, show_default=True, help="Processes.", metavar="N"
    ),
)


def output_options(command: Command) -> Command:
    """Add where HELM's tools look for runs."""
    return _with(command, _OUTPUT)


def allow_fewer_option(command: Command) -> Command:
    """Add the permission to replace statistics by fewer."""
    return _ALLOW_FEWER(command)


def metric_options(command: Command) -> Command:
    """Add how a run's metrics are computed."""
    return _with(command, _METRICS)


def unsafe_code_of(is_allowed: bool, tests: Path | None, *folders: Path | None) -> UnsafeCode | None:
    """What the options say of running what the model wrote; None where it is not allowed.

    Args:
        is_allowed: ``--confirm-run-unsafe-code``.
        tests: ``--code-tests``.
        folders: run's directories, from the first of which HELM's own tests are seen.
    """
    from assay.helm.scoring.code import UnsafeCode
    from assay.helm.selection import find_code_tests

    if not is_allowed:
        return None
    kept = [found for folder in folders if folder and (found := find_code_tests(folder))]
    return UnsafeCode(tests or next(iter(kept), None))


def _with(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
