"""Computes the metrics of a saved run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import MissingDependencyError, NothingMeasuredError, SpecificationError
from assay.helm.evaluation import plan_metrics
from assay.helm.metrics.registry import create_metric
from assay.helm.options import MetricOptions
from assay.helm.run_directory import RunFiles, metrics_of, write_run
from assay.helm.selection import find_run, import_plugins, load_tokenizer, select_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.helm.evaluation import Evaluated
    from assay.helm.installed_helm import InstalledHelmMetric
    from assay.helm.metrics.base import Metric
    from assay.helm.selection import SavedRun
    from assay.helm.stats import Stat

_DEFAULT_OPTIONS = MetricOptions()


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """A run whose metrics have been computed and written."""

    folder: Path
    """The run's directory."""
    evaluated: Evaluated
    left_out: tuple[str, ...]
    """For each metric or score that was not computed, a line with the reason."""
    missing: tuple[str, ...] = ()
    """Those of these lines where a package or data are not installed."""

    @property
    def stats(self) -> Sequence[Stat]:
        """Its statistics, in the order of the metrics."""
        return self.evaluated.stats

    def raise_if_incomplete(self) -> None:
        """Raise if statistics are missing that the run could have.

        Raises:
            MetricFailedError: a metric failed on the run.
            NothingMeasuredError: no answer was scored.
            MissingDependencyError: a metric needs a package or data that are not installed.
        """
        self.evaluated.check_metrics()
        if self.evaluated.nothing_measured:
            raise NothingMeasuredError(self.evaluated.nothing_measured)
        if self.missing:
            raise MissingDependencyError(
                f"all other statistics are written, but {'; '.join(self.missing)}; once it is installed, assay helm "
                f"evaluate {self.folder} computes the rest"
            )


def evaluate(
    run: str | Path,
    metrics: str | Sequence[str] = (),
    options: MetricOptions = _DEFAULT_OPTIONS,
    *,
    run_spec: str | Path | None = None,
    output_dir: str | Path | None = None,
    plugins: str | Sequence[str] = (),
    note: Callable[[str], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> ScoredRun:
    """Compute HELM's metrics from a run's saved requests and results, and write its files.

    Args:
        run: the run's directory, or its ``scenario_state.json``.
        metrics: scores (``exact_match``) or classes (``BasicGenerationMetric``) instead of the run's metrics.
        options: how the metrics are computed and written.
        run_spec: the run's specification, if it is not beside the state.
        output_dir: the directory for the five files; None: the run's directory, whose statistics are replaced.
        plugins: modules that define metrics of your own.
        note: called with a line for each metric that is left out, before anything is computed.
        progress: called from time to time with the number of requests read.

    Raises:
        UsageError: a metric is unknown or cannot be computed, or a file is damaged.
        OutputError: the files cannot be written.
        FewerStatisticsError: the new statistics are fewer than the old, and ``options.allow_fewer`` is not set.
        NothingMeasuredError: no metric can be computed.
    """
    import_plugins([plugins] if isinstance(plugins, str) else plugins)
    found = find_run(Path(run), None if run_spec is None else Path(run_spec))
    chosen = _chosen([metrics] if isinstance(metrics, str) else metrics, found, options)
    service = None if options.tokenizer is None else load_tokenizer(options.tokenizer)
    unsafe_code = options.unsafe_code(found.folder)
    planned = plan_metrics(chosen, found.state, service is not None, unsafe_code)
    if not planned.metrics or (_score_answers(chosen) and not _score_answers(planned.metrics)):
        raise NothingMeasuredError("; ".join(["no metric of the answers can be computed", *planned.left_out]))
    for line in planned.left_out:
        note(line)
    folder = found.folder if output_dir is None else Path(output_dir)
    evaluated = write_run(
        RunFiles(found.run_spec, found.scenario, found.state),
        planned.metrics,
        folder,
        service,
        options.parallelism,
        progress,
        unsafe_code,
        allow_fewer=options.allow_fewer,
    )
    return ScoredRun(folder=folder, evaluated=evaluated, left_out=tuple(planned.left_out))


def _score_answers(metrics: Sequence[Metric | InstalledHelmMetric]) -> bool:
    return any(metric.needs_answers for metric in metrics)


def _chosen(names: Sequence[str], run: SavedRun, options: MetricOptions) -> list[Metric | InstalledHelmMetric]:
    if names:
        return [create_metric(spec) for spec in select_metrics(names, run.run_spec)]
    if run.run_spec is None:
        raise SpecificationError(
            "there is no run_spec.json beside the state; say which metrics to compute: --metric or --run-spec"
        )
    return metrics_of(run.run_spec, options.first_metric_only)
