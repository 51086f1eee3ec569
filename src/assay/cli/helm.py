"""``assay helm``: HELM's metrics and run directories."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli.helm_options import allow_fewer_option, metric_options, output_options, unsafe_code_of
from assay.cli.helm_run import run
from assay.cli.remarks import remark_parts


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
    run_spec: Path | None,
    output_dir: Path | None,
    parallelism: int,
    tokenizer: str | None,
    plugins: tuple[str, ...],
    allow_fewer: bool,
    first_metric_only: bool,
    confirm_run_unsafe_code: bool,
    code_tests: Path | None,
    as_json: bool,
) -> None:
    """Compute HELM's metrics from the requests and results that a run has saved.

    Writes stats.json and per_instance_stats.json, and with --output-dir the run's other files beside them.
    """
    from assay.cli.helm_output import counting, print_stats, remark_evaluated, remark_lines
    from assay.errors import NothingMeasuredError, SpecificationError
    from assay.helm.evaluation import plan
    from assay.helm.metrics.registry import create_metric
    from assay.helm.run_directory import RunFiles, metrics_of, write_run
    from assay.helm.selection import find_run, import_plugins, load_tokenizer, select_metrics

    import_plugins(plugins)
    run = find_run(path, run_spec)
    if metrics:
        chosen = [create_metric(spec) for spec in select_metrics(metrics, run.run_spec)]
    elif run.run_spec is not None:
        chosen = metrics_of(run.run_spec, first_metric_only)
    else:
        raise SpecificationError(
            "which metrics? there is no run_spec.json beside the state; use --metric or --run-spec"
        )
    service = None if tokenizer is None else load_tokenizer(tokenizer)
    unsafe_code = unsafe_code_of(confirm_run_unsafe_code, code_tests, run.folder)
    plans = plan(chosen, run.state, service is not None, unsafe_code)
    remark_lines(plans.left_out)
    if not plans.metrics:
        raise NothingMeasuredError("no metric can be computed")
    files = RunFiles(run.run_spec, run.scenario, run.state)
    with counting() as tell:
        evaluated = write_run(
            files,
            plans.metrics,
            output_dir or run.folder,
            service,
            parallelism,
            tell,
            unsafe_code,
            allow_fewer=allow_fewer,
        )
    remark_evaluated(evaluated)
    print_stats(evaluated.stats, as_json, show_all=False)
    evaluated.check_metrics()
    if evaluated.nothing_measured:
        raise NothingMeasuredError(evaluated.nothing_measured)


@helm.command(short_help="Write a finished run of lm-eval's tasks as HELM's run directories.")
@click.argument("run_", metavar="RUN")
@output_options
@allow_fewer_option
def export(run_: str, output_dir: Path, suite: str, allow_fewer: bool) -> None:
    """Write a finished run of lm-eval's tasks, Assay's or lm-eval's, as HELM's run directories.

    RUN is a results file, a samples file, or a folder of results. A schema for helm-summarize is written beside them.
    """
    from assay.helm.lm_eval_runs import write_helm_runs
    from assay.helm.schema import SCHEMA
    from assay.runs.samples import results_file_of

    remark_parts(run_)
    for folder in write_helm_runs(results_file_of(run_), output_dir, suite, allow_fewer=allow_fewer):
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
    from assay.helm.stat_files import STATS, read_stats

    path = run_dir / STATS if run_dir.is_dir() else run_dir
    stats = read_stats(path)
    print_stats(stats, as_json, show_all)
    if not any(stat.count for stat in stats):
        raise NothingMeasuredError(f"{path} holds no statistic that has a value")
