"""Checks, before requests are sent, that the run's files can be written afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.errors import AssayError, FewerStatisticsError
from assay.helm.adaptation import instance_key
from assay.helm.installed_helm import InstalledHelmMetric
from assay.helm.run_directory import SCENARIO_STATE, RunFiles, check_run_directory, lost_statistics_message, write_run
from assay.helm.stat_files import STATS, lost_statistics
from assay.helm.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.helm.adaptation import InstanceKey, RequestResult, RequestState, ScenarioState
    from assay.helm.metrics.base import Metric
    from assay.helm.running.runs import RunToAnswer
    from assay.helm.tokenization import TokenizerService

_RequestKey = tuple[int, "InstanceKey", int | None, str | None]


def check_results_can_be_written(
    run: RunToAnswer,
    metrics: Sequence[Metric | InstalledHelmMetric],
    folder: Path,
    service: TokenizerService | None,
    *,
    returns_tokens: bool,
    allow_fewer: bool,
) -> None:
    """Check that the files of a run can be written to its directory once it is answered.

    If the directory has statistics, its answers are scored with the metrics, tokenizer and requests of the new run.
    Statistics that are missing then would also be missing after the new run.

    Args:
        run: The run to answer.
        metrics: The metrics to compute.
        folder: The run's directory, which need not exist.
        service: The tokenizer for the metrics.
        returns_tokens: Whether answers will come with their tokens.
        allow_fewer: Whether statistics may be replaced by fewer.

    Raises:
        OutputError: The directory cannot be written to.
        FileFormatError: The scenario's file is missing or damaged.
        FewerStatisticsError: The directory would lose statistics, and ``allow_fewer`` is not set.
    """
    check_run_directory(folder, run.scenario)
    if not allow_fewer and (lost := _lost_when_answered_again(run.state, metrics, folder, service, returns_tokens)):
        raise FewerStatisticsError(lost_statistics_message(folder, lost))


def _lost_when_answered_again(
    state: ScenarioState,
    metrics: Sequence[Metric | InstalledHelmMetric],
    folder: Path,
    service: TokenizerService | None,
    returns_tokens: bool,
) -> str | None:
    """The statistics that would be lost; None if that takes programs or HELM to find out."""
    if any(isinstance(metric, InstalledHelmMetric) or metric.code_scores for metric in metrics):
        return None
    if not (folder / STATS).exists() or not (folder / SCENARIO_STATE).is_file():
        return None
    with tempfile.TemporaryDirectory(prefix="assay-helm-") as rehearsal:
        try:
            answered = _with_earlier_results(state, StateFile(folder / SCENARIO_STATE), returns_tokens)
            write_run(RunFiles(None, None, answered), metrics, Path(rehearsal), service)
        except AssayError:  # the new answers may differ
            return None
        return lost_statistics(folder, Path(rehearsal))


def _with_earlier_results(state: ScenarioState, before: StateFile, returns_tokens: bool) -> ScenarioState:
    results = {_request_key(one): one.result for one in before if one.result is not None}
    states = [
        msgspec.structs.replace(one, result=_without_tokens(results.get(_request_key(one)), returns_tokens))
        for one in state.request_states
    ]
    return msgspec.structs.replace(state, request_states=states)


def _without_tokens(result: RequestResult | None, returns_tokens: bool) -> RequestResult | None:
    if result is None or returns_tokens:
        return result
    completions = [msgspec.structs.replace(one, logprob=0, tokens=[]) for one in result.completions]
    return msgspec.structs.replace(result, completions=completions)


def _request_key(state: RequestState) -> _RequestKey:
    return state.train_trial_index, instance_key(state.instance), state.reference_index, state.request_mode
