"""What would keep a run's files from being written, found before anything is asked."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.errors import AssayError, FewerStatisticsError
from assay.helm.adaptation import instance_key
from assay.helm.foreign import ForeignMetric
from assay.helm.run_directory import SCENARIO_STATE, RunFiles, check_place, would_lose, write_run
from assay.helm.stat_files import STATS, what_would_be_lost
from assay.helm.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.helm.adaptation import InstanceKey, RequestResult, RequestState, ScenarioState
    from assay.helm.metrics.base import Metric
    from assay.helm.running.runs import RunToAnswer
    from assay.helm.tokenization import TokenizerService

_Place = tuple[int, "InstanceKey", int | None, str | None]


def check_outcome(
    run: RunToAnswer,
    metrics: Sequence[Metric | ForeignMetric],
    folder: Path,
    service: TokenizerService | None,
    *,
    gives_tokens: bool,
    allow_fewer: bool,
) -> None:
    """See whether the files of a run can be written to its directory once it is answered.

    Where statistics are there already, the answers that they are of are scored as those to come will be: with the same
    metrics, tokenizer and requests. What is missing then would be missing afterwards.

    Args:
        run: The run to be answered.
        metrics: What is to be computed.
        folder: The run's directory, which may not exist.
        service: As for the metrics.
        gives_tokens: Whether answers will come with their tokens.
        allow_fewer: Whether statistics may be replaced by fewer.

    Raises:
        OutputError: The directory cannot be written to.
        FileFormatError: The scenario's file is missing or damaged.
        FewerStatisticsError: The directory would lose statistics, which is not allowed.
    """
    check_place(folder, run.scenario)
    if not allow_fewer and (lost := _would_be_missing(run.state, metrics, folder, service, gives_tokens)):
        raise FewerStatisticsError(would_lose(folder, lost))


def _would_be_missing(
    state: ScenarioState,
    metrics: Sequence[Metric | ForeignMetric],
    folder: Path,
    service: TokenizerService | None,
    gives_tokens: bool,
) -> str | None:
    """What the run's directory would lose, as far as that can be known; None where it takes programs or HELM."""
    if any(isinstance(metric, ForeignMetric) or metric.code_scores for metric in metrics):
        return None
    if not (folder / STATS).exists() or not (folder / SCENARIO_STATE).is_file():
        return None
    with tempfile.TemporaryDirectory(prefix="assay-helm-") as rehearsal:
        try:
            answered = _answered_as_before(state, StateFile(folder / SCENARIO_STATE), gives_tokens)
            write_run(RunFiles(None, None, answered), metrics, Path(rehearsal), service)
        except AssayError:  # says nothing of the answers to come
            return None
        return what_would_be_lost(folder, Path(rehearsal))


def _answered_as_before(state: ScenarioState, before: StateFile, gives_tokens: bool) -> ScenarioState:
    results = {_place(one): one.result for one in before if one.result is not None}
    states = [
        msgspec.structs.replace(one, result=_as_given(results.get(_place(one)), gives_tokens))
        for one in state.request_states
    ]
    return msgspec.structs.replace(state, request_states=states)


def _as_given(result: RequestResult | None, gives_tokens: bool) -> RequestResult | None:
    if result is None or gives_tokens:
        return result
    completions = [msgspec.structs.replace(one, logprob=0, tokens=[]) for one in result.completions]
    return msgspec.structs.replace(result, completions=completions)


def _place(state: RequestState) -> _Place:
    return state.train_trial_index, instance_key(state.instance), state.reference_index, state.request_mode
