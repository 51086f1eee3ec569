"""``assay helm``: HELM's metrics and run directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.helm_options import allow_fewer_option, metric_options, metric_options_of, output_options
from assay.cli.helm_run import run
from assay.cli.remarks import remark_partial_runs


@click.group(short_help="HELM's metrics and run directories, without HELM.")
def helm() -> None:
    """HELM's metrics and run directories, without HELM."""


helm.add_command(run)


@helm.command(short_help="Compute metrics from a saved run.")
@click.argument("path", type=click.Path(path_type=Path), metavar="RUN_DIR|scenario_state.json")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    help="Score (exact_match) or class (BasicGenerationMetric) instead of the run's own metrics. May be repeated.",
    metavar="NAME",
)
@click.option("--run-spec", type=click.Path(path_type=Path), help="The run's run_spec.json.", metavar="FILE")
@click.option(
    "--output-dir", type=click.Path(path_type=Path), help="Where the five files go (default: RUN_DIR).", metavar="DIR"
)
@click.option(
    "--tokenizer",
    help="The model's tokenizer: hf:PATH, or MODULE:OBJECT with encode and decode.",
    metavar="hf:PATH|MODULE:OBJECT",
)
@click.option(
    "--plugin", "plugins", multiple=True, help="A module with metrics of your own. May be repeated.", metavar="MODULE"
)
@allow_fewer_option
@metric_options
@click.option("--json", "as_json", is_flag=True, help="Print the statistics as JSON.")
def evaluate(
    path: Path,
    metrics: tuple[str, ...],
    **options: Any,
) -> None:
    """Compute HELM's metrics from the requests and results that a run has saved.

    Writes stats.json and per_instance_stats.json, and with --output-dir the run's other files beside them.
    """
    from assay.cli.helm_output import counting, print_stats, remark_evaluated, remark_lines
    from assay.helm.saved_run import evaluate as compute

    with counting() as count:
        scored = compute(
            path,
            metrics,
            metric_options_of(options),
            run_spec=options["run_spec"],
            output_dir=options["output_dir"],
            plugins=options["plugins"],
            note=lambda line: remark_lines([line]),
            progress=count,
        )
    remark_evaluated(scored.evaluated)
    print_stats(scored.stats, options["as_json"], show_all=False)
    scored.raise_if_incomplete()


@helm.command(short_help="Write a finished run of lm-eval's tasks as HELM's run directories.")
@click.argument("run_", metavar="RUN")
@output_options
@allow_fewer_option
def export(run_: str, output_dir: Path, suite: str, allow_fewer: bool) -> None:
    """Write a finished run of lm-eval's tasks, Assay's or lm-eval's, as HELM's run directories.

    RUN is a results file, a samples file, or a folder of results. A schema for helm-summarize is written beside them.
    """
    from assay.helm.lm_eval_runs import export as write
    from assay.helm.schema import SCHEMA

    remark_partial_runs(run_)
    for folder in write(run_, output_dir, suite, allow_fewer=allow_fewer):
        print(folder)
    print(f"helm-summarize --output-path {output_dir} --suite {suite} --schema-path {output_dir / SCHEMA} reads them")


@helm.command(short_help="Show a run's statistics.")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--all", "show_all", is_flag=True, help="Bookkeeping, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the statistics as JSON.")
def show(run_dir: Path, show_all: bool, as_json: bool) -> None:
    """Show what stats.json of a run directory says: scores, and worst cases over perturbations."""
    from assay.cli.helm_output import print_stats
    from assay.errors import NothingMeasuredError
    from assay.helm.stat_files import read_stats

    stats = read_stats(run_dir)
    print_stats(stats, as_json, show_all)
    if not any(stat.count for stat in stats):
        raise NothingMeasuredError(f"stats.json holds no statistic that has a value: {run_dir}")
