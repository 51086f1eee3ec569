"""A first policy for a server: tasks that fit it, and thresholds from a first run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import DataNotFoundError, NothingMeasuredError
from assay.evaluation import evaluate
from assay.gate.inference_configs import Demand, ImportedGate
from assay.types import Specification

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.evaluation import Evaluation
    from assay.progress import Progress
    from assay.scoring.measure import Score
    from assay.types import EndpointKind, ModelSpec, TaskOptions

_FITTING: dict[EndpointKind, tuple[str, ...]] = {
    "chat": ("gsm8k_cot", "ifeval", "mmlu_pro"),
    "completions": ("gsm8k", "arc_easy", "hellaswag"),
}
"""By endpoint, tasks that tell much about a model with few questions. The first one whose data is available is used."""
_KEPT = ("include_path", "data_dir", "num_fewshot")
"""Options of the first run that go into the policy."""
_STANDARD_ERRORS = 3.0
"""How far a threshold lies below the first run's score, so that a healthy model stays above it."""


@dataclass(frozen=True)
class FirstPolicy:
    """A first run, and the policy made from it."""

    gate: ImportedGate
    evaluation: Evaluation


def first_policy(
    model: ModelSpec,
    options: TaskOptions,
    tasks: tuple[str, ...],
    output_dir: str,
    progress: Callable[[], Progress],
) -> FirstPolicy:
    """Run tasks once, and make a policy with thresholds that a healthy model will reach.

    Args:
        model: the server.
        options: how the tasks are run; ``limit`` is for the first run alone.
        tasks: the tasks to run; if empty, one that fits the endpoint.
        output_dir: where the first run's results go.
        progress: makes a progress display.

    Raises:
        DataNotFoundError: no fitting task has its data.
        NothingMeasuredError: no score is surely above 0, so there is nothing to guard.
    """
    evaluation = _first_run(
        model, options, [tasks] if tasks else [(each,) for each in _FITTING[model.endpoint]], output_dir, progress
    )
    demands = [_demand(score) for score in _best_of_each_task(evaluation)]
    found = tuple(demand for demand in demands if demand is not None)
    if not found:
        raise NothingMeasuredError(
            f"no score of {evaluation.results_file} is surely above 0: there is nothing to guard; assay triage says why"
        )
    kept = {name: getattr(options, name) for name in _KEPT if getattr(options, name) is not None}
    gate = ImportedGate(
        name=f"a first run: {evaluation.results_file}",
        model=model.model,
        demands=found,
        is_chat=model.endpoint == "chat",
        options=kept | ({"gen_kwargs": options.gen_kwargs} if options.gen_kwargs else {}),
    )
    return FirstPolicy(gate, evaluation)


def _first_run(
    model: ModelSpec,
    options: TaskOptions,
    choices: list[tuple[str, ...]],
    output_dir: str,
    progress: Callable[[], Progress],
) -> Evaluation:
    """Run the first of the choices whose data is available."""
    *others, last = choices
    for tasks in others:
        try:
            return evaluate(_specification(model, options, tasks, output_dir), progress())
        except DataNotFoundError:
            continue
    return evaluate(_specification(model, options, last, output_dir), progress())


def _specification(model: ModelSpec, options: TaskOptions, tasks: tuple[str, ...], output_dir: str) -> Specification:
    return Specification(tasks=tasks, model=model, options=options, output_dir=output_dir, probe=True)


def _best_of_each_task(evaluation: Evaluation) -> list[Score]:
    """The highest mean of each task: of several filters, the one that finds the answers."""
    best: dict[str, Score] = {}
    for score in evaluation.scores:
        is_mean = score.interval is not None and score.value is not None and score.higher_is_better is not False
        if is_mean and (score.task not in best or (score.value or 0) > (best[score.task].value or 0)):
            best[score.task] = score
    return list(best.values())


def _demand(score: Score) -> Demand | None:
    value = score.value or 0.0
    error = math.sqrt(max(value * (1 - value), 0.0) / score.n) if 0 <= value <= 1 else score.stderr or 0.0
    least = math.floor(100 * (value - _STANDARD_ERRORS * error)) / 100
    if not score.n or least <= 0:
        return None
    return Demand(
        task=score.task,
        metric=str(score.metric),
        min=least,
        remark=f"{value:.3g} on {score.n} documents, less three standard errors; raise it once more is known.",
    )
