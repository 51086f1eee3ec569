"""``assay helm``: HELM's metrics and run directories."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.helm.evaluate import Evaluated
    from assay.helm.stats import Stat

_LINES_SHOWN = 5


@click.group(short_help="HELM's metrics and run directories, without HELM.")
def helm() -> None:
    """HELM's metrics and run directories, without HELM."""


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
@click.option("--parallelism", type=click.IntRange(min=1), default=4, show_default=True, help="Processes.", metavar="N")
@click.option(
    "--tokenizer",
    help="The model's tokenizer: hf:PATH, or MODULE:OBJECT with encode and decode.",
    metavar="hf:PATH|MODULE:OBJECT",
)
@click.option("--first-metric-only", is_flag=True, help="Compute only the run's first metric, as FlexLLMGen does.")
@click.option("--json", "as_json", is_flag=True, help="Print the statistics as JSON.")
def evaluate(
    path: Path,
    metrics: tuple[str, ...],
    run_spec: Path | None,
    output_dir: Path | None,
    parallelism: int,
    tokenizer: str | None,
    first_metric_only: bool,
    as_json: bool,
) -> None:
    """Compute HELM's metrics from the requests and results that a run has saved.

    Writes stats.json and per_instance_stats.json, and with --output-dir the run's other files beside them.
    """
    from assay.errors import NothingMeasuredError, SpecificationError
    from assay.helm.evaluate import plan
    from assay.helm.metrics.registry import create_metric
    from assay.helm.run_directory import STATS, RunFiles, metrics_of, write_run
    from assay.helm.selection import find_run, load_tokenizer, select_metrics

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
    plans = plan(chosen, run.state.adapter_spec, service is not None)
    _remark(plans.left_out)
    if not plans.metrics:
        raise NothingMeasuredError("no metric can be computed")
    is_partial = bool(metrics or first_metric_only or plans.left_out)
    if output_dir is None and is_partial and (run.folder / STATS).exists():
        raise SpecificationError(
            f"{run.folder / STATS} may hold more than this would compute; name another --output-dir, or that folder"
        )
    files = RunFiles(run.run_spec, run.scenario, run.state)
    with _progress() as progress:
        evaluated = write_run(files, plans.metrics, output_dir or run.folder, service, parallelism, progress)
    _remark_evaluated(evaluated)
    _print(evaluated.stats, as_json, show_all=False)
    if evaluated.num_requests and not any(stat.count for stat in evaluated.stats):
        raise NothingMeasuredError("not one request could be scored")


@helm.command(short_help="Show a run's statistics.")
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--all", "show_all", is_flag=True, help="Bookkeeping, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the statistics as JSON.")
def show(run_dir: Path, show_all: bool, as_json: bool) -> None:
    """Show what stats.json of a run directory says: scores, and worst cases over perturbations."""
    from assay.helm.run_directory import STATS, read_stats

    _print(read_stats(run_dir / STATS if run_dir.is_dir() else run_dir), as_json, show_all)


def _print(stats: Sequence[Stat], as_json: bool, show_all: bool) -> None:
    from assay.helm.stats import is_finite

    if as_json:
        from assay.helm.structs import dump_json

        print(dump_json([stat.to_builtins() for stat in stats if is_finite(stat)]).decode())
        return
    from rich.console import Console

    from assay.helm.show import main_stats, stats_table

    console = Console(width=None if sys.stdout.isatty() else 220, highlight=False, markup=False)
    console.print(stats_table(stats if show_all else main_stats(stats)))


def _remark(lines: Sequence[str]) -> None:
    from assay.report.text import printable

    for line in lines:
        print(printable(line), file=sys.stderr)


def _remark_evaluated(evaluated: Evaluated) -> None:
    shown = evaluated.unscored[:_LINES_SHOWN]
    if evaluated.unscored:
        print(f"{len(evaluated.unscored)} instances could not be scored:", file=sys.stderr)
        _remark([f"  {line}" for line in shown])
    if len(evaluated.unscored) > len(shown):
        print(f"  … and {len(evaluated.unscored) - len(shown)} more", file=sys.stderr)
    if evaluated.duplicate_names:
        _remark([f"given by more than one metric: {', '.join(evaluated.duplicate_names)}"])


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """A line on stderr that counts up, where somebody is looking."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    def tell(count: int) -> None:
        print(f"\r{count:,} requests", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        print(file=sys.stderr)
