"""Options that the commands of ``assay helm`` share."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.helm.options import MetricOptions

    Command = TypeVar("Command", bound=Callable[..., Any])


_OUTPUT = (
    click.option(
        "--output-dir",
        type=click.Path(path_type=Path),
        default=Path("benchmark_output"),
        show_default=True,
        help="HELM's output path; what is written goes to runs/SUITE/ in it.",
        metavar="DIR",
    ),
    click.option("--suite", default="assay", show_default=True, help="HELM's suite of runs.", metavar="NAME"),
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


def metric_options_of(options: Mapping[str, Any]) -> MetricOptions:
    """What the command's options say of how metrics are computed."""
    from assay.helm.options import MetricOptions

    return MetricOptions(**{field.name: options[field.name] for field in fields(MetricOptions)})


def _with(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
