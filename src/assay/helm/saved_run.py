"""A run that is saved: its metrics computed, and what they came to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import MissingDependencyError, NothingMeasuredError, SpecificationError
from assay.helm.evaluation import plan
from assay.helm.metrics.registry import create_metric
from assay.helm.options import MetricOptions
from assay.helm.run_directory import RunFiles, metrics_of, write_run
from assay.helm.selection import find_run, import_plugins, load_tokenizer, select_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.helm.evaluation import Evaluated
    from assay.helm.foreign import ForeignMetric
    from assay.helm.metrics.base import Metric
    from assay.helm.selection import Run
    from assay.helm.stats import Stat

_AS_USUAL = MetricOptions()


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """A run whose metrics are computed and written."""

    folder: Path
    """Where its files are."""
    evaluated: Evaluated
    left_out: tuple[str, ...]
    """One line for whatever was not computed, and why."""
    missing: tuple[str, ...] = ()
    """Of these, what needs a package or data that are not installed."""

    @property
    def stats(self) -> Sequence[Stat]:
        """Its statistics, those of the first metric first."""
        return self.evaluated.stats

    def raise_if_incomplete(self) -> None:
        """Raise where the run's files lack something that could be there.

        Raises:
            MetricFailedError: a metric failed on the run.
            NothingMeasuredError: the statistics say nothing of any answer.
            MissingDependencyError: a metric needs what is not installed.
        """
        self.evaluated.check_metrics()
        if self.evaluated.nothing_measured:
            raise NothingMeasuredError(self.evaluated.nothing_measured)
        if self.missing:
            raise MissingDependencyError(
                f"all other statistics are written, but {'; '.join(self.missing)}; once that is there, assay helm "
                f"evaluate {self.folder} computes them"
            )


def evaluate(
    run: str | Path,
    metrics: str | Sequence[str] = (),
    options: MetricOptions = _AS_USUAL,
    *,
    run_spec: str | Path | None = None,
    output_dir: str | Path | None = None,
    plugins: str | Sequence[str] = (),
    note: Callable[[str], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> ScoredRun:
    """Compute HELM's metrics from the requests and results that a run has saved, and write its files.

    Args:
        run: the run's directory, or its ``scenario_state.json``.
        metrics: scores (``exact_match``) or classes (``BasicGenerationMetric``) instead of the run's own metrics.
        options: how they are computed.
        run_spec: the run's specification, where it is not beside the state.
        output_dir: where the five files go; None: the run's directory, which gets new statistics.
        plugins: modules with metrics of your own.
        note: told, before anything is computed, what is left out and why.
        progress: told now and then how many requests have been taken.

    Raises:
        UsageError: a metric is unknown or cannot be computed, or a file is damaged.
        OutputError: the files cannot be written.
        FewerStatisticsError: they would replace statistics by fewer, which ``options`` does not allow.
        NothingMeasuredError: no metric can be computed.
    """
    import_plugins([plugins] if isinstance(plugins, str) else plugins)
    found = find_run(Path(run), None if run_spec is None else Path(run_spec))
    chosen = _chosen([metrics] if isinstance(metrics, str) else metrics, found, options)
    service = None if options.tokenizer is None else load_tokenizer(options.tokenizer)
    unsafe_code = options.unsafe_code(found.folder)
    plans = plan(chosen, found.state, service is not None, unsafe_code)
    if not plans.metrics or (_are_of_answers(chosen) and not _are_of_answers(plans.metrics)):
        raise NothingMeasuredError("; ".join(["no metric of the answers can be computed", *plans.left_out]))
    for line in plans.left_out:
        note(line)
    folder = found.folder if output_dir is None else Path(output_dir)
    evaluated = write_run(
        RunFiles(found.run_spec, found.scenario, found.state),
        plans.metrics,
        folder,
        service,
        options.parallelism,
        progress,
        unsafe_code,
        allow_fewer=options.allow_fewer,
    )
    return ScoredRun(folder=folder, evaluated=evaluated, left_out=tuple(plans.left_out))


def _are_of_answers(metrics: Sequence[Metric | ForeignMetric]) -> bool:
    return any(metric.needs_answers for metric in metrics)


def _chosen(names: Sequence[str], run: Run, options: MetricOptions) -> list[Metric | ForeignMetric]:
    if names:
        return [create_metric(spec) for spec in select_metrics(names, run.run_spec)]
    if run.run_spec is None:
        raise SpecificationError(
            "which metrics? there is no run_spec.json beside the state; use --metric or --run-spec"
        )
    return metrics_of(run.run_spec, options.first_metric_only)
