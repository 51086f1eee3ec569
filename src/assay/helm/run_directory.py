"""A run's directory: HELM's five files."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import msgspec

from assay._util.storage import write_error
from assay.errors import (
    FewerStatisticsError,
    MissingDependencyError,
    OutputError,
    UnknownMetricError,
)
from assay.helm.evaluation import Evaluated, evaluate
from assay.helm.metrics.base import DEFAULT_PARALLELISM
from assay.helm.metrics.registry import NATIVE, create_metric
from assay.helm.run_spec import MetricSpec, RunSpec
from assay.helm.scenario import Scenario
from assay.helm.scoring.scorer import check_names
from assay.helm.stat_files import PER_INSTANCE_STATS, STATS, lost_statistics, read_file
from assay.helm.stat_writer import PerInstanceWriter, write_list
from assay.helm.state_file import StateFile
from assay.helm.stats import is_finite
from assay.helm.structs import dump_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from assay.helm.adaptation import ScenarioState
    from assay.helm.installed_helm import InstalledHelmMetric
    from assay.helm.metrics.base import Metric
    from assay.helm.scoring.code import UnsafeCode
    from assay.helm.stats import PerInstanceStats, Stat
    from assay.helm.tokenization import TokenizerService

RUN_SPEC = "run_spec.json"
SCENARIO = "scenario.json"
SCENARIO_STATE = "scenario_state.json"

_DRAFT = ".evaluating-"
_STALE_AFTER = 24 * 3600.0
"""Seconds after which a draft surely is of a process that was killed."""

_TOKENS_METRIC = MetricSpec("helm.benchmark.metrics.tokens_metric.TokensMetric")


def read_run_spec(path: Path) -> RunSpec:
    """Read a run specification.

    Raises:
        FileFormatError: The file is missing, damaged, or not a run specification.
    """
    return RunSpec.from_json(read_file(path), str(path))


def metrics_of(run_spec: RunSpec, first_only: bool = False) -> list[Metric | InstalledHelmMetric]:
    """The metrics that a run is evaluated with.

    HELM 0.2 adds its token counts to the metrics of the specification.

    Args:
        run_spec: The run.
        first_only: Take only the first metric, and no token counts, as FlexLLMGen does.
    """
    return [create_metric(spec) for spec in _metric_specs(run_spec, first_only)]


class AvailableMetrics(NamedTuple):
    """The metrics of a run that can be computed here, and why others cannot."""

    metrics: list[Metric | InstalledHelmMetric]
    only_in_helm: list[str]
    """For each metric or score that only HELM computes, a line."""
    missing: list[str]
    """For each metric or score that needs a package or data that are not installed, a line."""


def available_metrics(run_spec: RunSpec, first_only: bool = False) -> AvailableMetrics:
    """Find out which of a run's metrics can be computed; a missing score does not affect the others.

    Args:
        run_spec: The run.
        first_only: As for :func:`metrics_of`.
    """
    possible = AvailableMetrics([], [], [])
    for spec in _metric_specs(run_spec, first_only):
        try:
            possible.metrics.append(create_metric(_with_available_scores(spec, possible)))
        except (MissingDependencyError, UnknownMetricError) as error:
            is_missing = spec.class_name in NATIVE and isinstance(error, MissingDependencyError)
            (possible.missing if is_missing else possible.only_in_helm).append(f"left out: {error}")
    return possible


def _with_available_scores(spec: MetricSpec, possible: AvailableMetrics) -> MetricSpec:
    """The metric with only those of its scores that can be computed."""
    names = spec.args.get("names")
    if spec.class_name not in NATIVE or not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        return spec
    kept = []
    for name in names:
        try:
            check_names([name])
            kept.append(name)
        except MissingDependencyError as error:
            possible.missing.append(f"{name} is left out: {error}")
        except UnknownMetricError as error:
            possible.only_in_helm.append(f"{name} is left out: {error}")
    return spec if kept == names else msgspec.structs.replace(spec, args={**spec.args, "names": kept})


def _metric_specs(run_spec: RunSpec, first_only: bool) -> list[MetricSpec]:
    specs = run_spec.metric_specs
    if first_only:
        return specs[:1]
    if run_spec.adapter_spec.predates_deployments and _TOKENS_METRIC not in specs:
        return [*specs, _TOKENS_METRIC]
    return specs


@dataclass(frozen=True)
class RunFiles:
    """The files of a run besides its statistics. ``None`` leaves a file out."""

    run_spec: RunSpec | None
    scenario: Scenario | Path | None
    state: ScenarioState | StateFile


def run_entry(
    run_spec: RunSpec,
    state: ScenarioState | StateFile,
    output_dir: str | os.PathLike[str],
    metric_service: TokenizerService | None = None,
    *,
    scenario: Scenario | str | os.PathLike[str] | None = None,
    first_metric_only: bool = False,
    parallelism: int = DEFAULT_PARALLELISM,
    unsafe_code: UnsafeCode | None = None,
    allow_fewer: bool = False,
) -> Evaluated:
    """Evaluate all metrics of a run and write its five files, each of them whole or not at all.

    Args:
        run_spec: The run; its metrics are evaluated.
        state: Its requests with their results.
        output_dir: The directory for the files; HELM's tools expect it to have the run's name.
        metric_service: Answers HELM's tokenization requests.
        scenario: The content of ``scenario.json``, or the path of such a file.
        first_metric_only: Evaluate only the first metric, as FlexLLMGen does.
        parallelism: Maximum number of scoring processes.
        unsafe_code: Permission to run code written by the model.
        allow_fewer: Replace existing statistics even if the new ones are fewer.

    Raises:
        UsageError: A metric cannot be computed, or the state is damaged.
        MetricFailedError: A metric fails on the run; the files are written, with the statistics of the others.
        OutputError: The files cannot be written.
        FewerStatisticsError: They would replace statistics by fewer.
    """
    metrics = metrics_of(run_spec, first_metric_only)
    source = scenario if scenario is None or isinstance(scenario, Scenario) else Path(scenario)
    evaluated = write_run(
        RunFiles(run_spec, source, state),
        metrics,
        Path(output_dir),
        metric_service,
        parallelism,
        unsafe_code=unsafe_code,
        allow_fewer=allow_fewer,
    )
    evaluated.check_metrics()
    return evaluated


def write_run(
    files: RunFiles,
    metrics: Sequence[Metric | InstalledHelmMetric],
    output_dir: Path,
    metric_service: TokenizerService | None = None,
    parallelism: int = DEFAULT_PARALLELISM,
    progress: Callable[[int], None] = lambda _: None,
    unsafe_code: UnsafeCode | None = None,
    *,
    allow_fewer: bool = False,
) -> Evaluated:
    """Evaluate metrics over a run's requests and write its files, each of them whole or not at all.

    Metrics that fail on the run have no statistics; the result says which and why.

    Raises:
        UsageError: A metric cannot be computed, or the state is damaged.
        OutputError: The files cannot be written.
        FewerStatisticsError: They would replace statistics by fewer, and ``allow_fewer`` is not set.
    """
    _check_scenario(files.scenario)
    with _drafting(output_dir) as draft, ExitStack() as stack:
        spools = [_Spool(stack.enter_context(_scratch(draft))) for _ in metrics]
        evaluated = evaluate(metrics, files.state, metric_service, spools, parallelism, progress, unsafe_code)
        _write_files(draft, output_dir, files, evaluated.stats, spools)
        if not allow_fewer:
            _refuse_fewer(output_dir, draft, evaluated.failed)
    return evaluated


def write_scored_run(
    files: RunFiles,
    stats: Iterable[Stat],
    per_instance_stats: Iterable[PerInstanceStats],
    output_dir: Path,
    *,
    allow_fewer: bool = False,
) -> None:
    """Write the files of a run whose statistics are already computed, each of them whole or not at all.

    Raises:
        OutputError: The files cannot be written.
        FewerStatisticsError: They would replace statistics by fewer, and ``allow_fewer`` is not set.
    """
    with _drafting(output_dir) as draft, _scratch(draft) as scratch:
        spool = _Spool(scratch)
        for record in per_instance_stats:
            spool(record)
        _write_files(draft, output_dir, files, stats, [spool])
        if not allow_fewer:
            _refuse_fewer(output_dir, draft)


@contextmanager
def _drafting(output_dir: Path) -> Iterator[Path]:
    """A temporary folder, whose files are moved to the run's directory if the block does not raise."""
    _refuse_directories(output_dir)
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        _remove_stale_drafts(output_dir)
        with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=output_dir) as folder:
            draft = Path(folder)
            yield draft
            for path in sorted(draft.glob("*.json")):
                os.replace(path, output_dir / path.name)
    except OSError as error:
        raise write_error(f"{output_dir} cannot be written", error) from None


def _refuse_fewer(output_dir: Path, draft: Path, reasons: Sequence[str] = ()) -> None:
    if lost := lost_statistics(output_dir, draft):
        raise FewerStatisticsError(lost_statistics_message(output_dir, lost, reasons))


def lost_statistics_message(output_dir: Path, lost: str, reasons: Sequence[str] = ()) -> str:
    """The message for a run's directory that is left unchanged.

    Args:
        output_dir: The directory.
        lost: Which of its statistics would be lost.
        reasons: Why they are missing, where metrics failed.
    """
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"{output_dir} is left unchanged, because it would lose {lost}{why}; write to another directory, or allow it "
        "(--allow-fewer; in Python allow_fewer=True)"
    )


def check_run_directory(output_dir: Path, scenario: Scenario | Path | None) -> None:
    """Check before the work that a run's files can be written.

    Args:
        output_dir: The run's directory, which need not exist.
        scenario: The scenario, or the file that is copied into the directory.

    Raises:
        OutputError: The files cannot be written there.
        FileFormatError: The scenario's file is missing or damaged.
    """
    _check_scenario(scenario)
    _refuse_directories(output_dir)
    check_writable(output_dir)


def check_writable(folder: Path) -> None:
    """Check that files can be written to a folder, which need not exist.

    Raises:
        OutputError: They cannot.
    """
    existing = next(one for one in (folder, *folder.absolute().parents) if os.path.lexists(one))
    if not existing.is_dir():
        raise OutputError(f"{folder} cannot be written: {existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(f"{folder} cannot be written: {existing} is not writable")


def _check_scenario(scenario: Scenario | Path | None) -> None:
    if isinstance(scenario, Path):  # do not copy a damaged file
        Scenario.from_json(read_file(scenario), str(scenario))


def _refuse_directories(output_dir: Path) -> None:
    """Refuse a directory where some of the files could be replaced and others could not."""
    for path in (output_dir / name for name in (RUN_SPEC, SCENARIO, SCENARIO_STATE, STATS, PER_INSTANCE_STATS)):
        if path.is_dir() and not path.is_symlink():
            raise OutputError(
                f"{path} is a directory, but a file of that name has to be written: move the directory away"
            )


def _remove_stale_drafts(output_dir: Path) -> None:
    """Remove drafts of evaluations that were killed."""
    for draft in output_dir.glob(f"{_DRAFT}*"):
        with suppress(OSError):  # another process removed it
            if draft.stat().st_mtime < time.time() - _STALE_AFTER:
                shutil.rmtree(draft)


class _Spool:
    """Keeps one metric's per-instance statistics on disk until all metrics are done."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self._writer = PerInstanceWriter(file)

    def __call__(self, record: PerInstanceStats, /) -> None:
        self._writer.write(record)

    def reset(self) -> None:
        self.file.seek(0)
        self.file.truncate()
        self._writer = PerInstanceWriter(self.file)


def _scratch(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder)


def _write_files(
    draft: Path, output_dir: Path, files: RunFiles, stats: Iterable[Stat], spools: Sequence[_Spool]
) -> None:
    (draft / STATS).write_bytes(dump_json([stat.to_builtins() for stat in stats if is_finite(stat)]))
    with (draft / PER_INSTANCE_STATS).open("wb") as file:
        write_list(file, (spool.file for spool in spools))
    _write_inputs(draft, files, output_dir)


def _write_inputs(draft: Path, files: RunFiles, output_dir: Path) -> None:
    if files.run_spec is not None:
        (draft / RUN_SPEC).write_bytes(files.run_spec.to_json())
    if isinstance(files.scenario, Path):
        shutil.copyfile(files.scenario, draft / SCENARIO)
    elif files.scenario is not None:
        (draft / SCENARIO).write_bytes(files.scenario.to_json())
    if not isinstance(files.state, StateFile):
        (draft / SCENARIO_STATE).write_bytes(files.state.to_json())
    elif files.state.path.resolve() != (output_dir / SCENARIO_STATE).resolve():
        shutil.copyfile(files.state.path, draft / SCENARIO_STATE)
