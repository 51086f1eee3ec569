"""What a gate will be able to see, before it asks anything.

The expected numbers of documents are medians over simulated random orders of right-or-wrong scores, under assumptions
that are printed with them; the smallest visible drop comes from :mod:`assay.stats.power`.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from assay.checks.scope import scope_of
from assay.checks.sequential import plan_of
from assay.checks.verdicts import demand_of
from assay.stats.many import decide_many
from assay.stats.power import detectable_drop, detectable_loss
from assay.stats.sampling import permuted
from assay.tasks.metrics import metric_keys_by_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from assay.checks.scope import Scope
    from assay.stats.plans import SequentialPlan
    from assay.types import Check, Specification

_RUNS = 100
"""Simulated orders."""
_FLIPS = 0.02
"""Share of answers that flip, evenly, between two runs of a healthy server, unless measured (``assay calibrate``)."""
_LOSS_BEYOND_MARGIN = 0.10
_POWER = 0.8


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What one check can see."""

    model: str
    task: str
    metric: str
    demand: str
    population: int
    """Documents there are."""
    budget: int
    """Documents that may be asked."""
    alpha: float
    detectable: float | None
    """Smallest drop below the threshold, or loss against the baseline, that a fixed-size test of ``budget`` documents
    shows with probability 0.8; 0 or the margin where all documents may be asked, which decides exactly. None where the
    check is decided only by the whole run."""
    healthy: str
    """What is assumed of a healthy server."""
    healthy_documents: int
    """Median of documents asked then."""
    broken: str
    broken_documents: int


def explain(name: str, specification: Specification) -> Iterator[Outlook]:
    """The outlook of every check of one model's run.

    Raises:
        UsageError: a task or metric does not exist, or its data is missing, or a baseline cannot be read.
        BaselineMismatchError: a baseline that is there already is of another task version or other settings.
    """
    from assay.checks.planned import refuse_misfit
    from assay.checks.verdicts import resolve_checks
    from assay.runs.files import read_run
    from assay.specification import validate
    from assay.tasks.library import load_tasks
    from assay.tasks.model_args import model_args
    from assay.tasks.selection import chosen_documents

    specification = validate(specification)
    loaded = load_tasks(specification.tasks, specification.options, model_args(specification.model))
    chosen = chosen_documents(loaded.tasks, specification.options)
    sizes = {task: len(numbers) for task, numbers in chosen.items()}
    read_baseline = functools.cache(read_run)
    for check in resolve_checks(specification.checks, metric_keys_by_name(loaded), specification.tasks):
        scope = scope_of(check, loaded)
        if check.baseline is not None and not _is_absent(check.baseline):
            refuse_misfit(check, scope, read_baseline(check.baseline), loaded, specification.options)
        population = scope.population(sizes)
        stopping = specification.early_stopping
        limit = None if stopping is None else stopping.budget.documents
        budget = population if limit is None else min(limit, population)
        follows = stopping is not None and scope.is_mean
        yield _outlook(name, check, scope, population, budget, follows=follows)


def _outlook(name: str, check: Check, scope: Scope, population: int, budget: int, *, follows: bool) -> Outlook:
    plan = plan_of(check, scope, population, dict.fromkeys(scope.tasks, 1.0))
    if check.baseline is None:
        healthy, broken = _likely_scores(check)
        words = (f"score {healthy:.3f}", f"score {broken:.3f}")
        scores = (_scores(population, healthy), _scores(population, broken))
    else:
        loss = min((check.margin or 0.0) + _LOSS_BEYOND_MARGIN, 1.0)
        words = (f"{_FLIPS:.0%} of answers flip evenly", f"{loss:.3f} worse")
        sign = 1 if scope.higher_is_better else -1
        scores = (_differences(population, 0.0), sign * _differences(population, loss))
    healthy_documents, broken_documents = (
        _median_documents(plan, values) if follows else population for values in scores
    )
    return Outlook(
        model=name,
        task=check.task or "",
        metric=check.metric,
        demand=_demand(check),
        population=population,
        budget=budget,
        alpha=check.alpha,
        detectable=_detectable(check, population, budget) if follows or budget == population else None,
        healthy=words[0],
        healthy_documents=healthy_documents,
        broken=words[1],
        broken_documents=broken_documents,
    )


def _demand(check: Check) -> str:
    is_absent = check.baseline is not None and _is_absent(check.baseline)
    return f"{demand_of(check)}{', which is not there yet' if is_absent else ''}"


def _is_absent(baseline: str) -> bool:
    """A margin may be chosen before there is a baseline."""
    return not os.path.lexists(baseline)


def _likely_scores(check: Check) -> tuple[float, float]:
    """Ten points better than demanded, or half the way to the best; and half as good as demanded."""
    if check.min is not None:
        return min(check.min + 0.1, (1 + check.min) / 2), check.min / 2
    maximum = check.max or 0.0
    return max(maximum - 0.1, maximum / 2), (1 + maximum) / 2


def _scores(population: int, share: float) -> NDArray[np.float64]:
    return (np.arange(population) < round(share * population)).astype(np.float64)


def _differences(population: int, loss: float) -> NDArray[np.float64]:
    """Flips either way as in a healthy server, and a loss on top."""
    gained = round(population * _FLIPS / 2)
    lost = min(gained + round(loss * population), population - gained)
    differences = np.zeros(population)
    differences[:gained] = 1.0
    differences[gained : gained + lost] = -1.0
    return differences


def _median_documents(plan: SequentialPlan, values: NDArray[np.float64]) -> int:
    _, documents = decide_many(plan, permuted(values, _RUNS, seed=0))
    return int(np.median(documents))


def _detectable(check: Check, population: int, budget: int) -> float:
    if check.baseline is not None:
        return detectable_loss(
            budget, _FLIPS, margin=check.margin or 0.0, alpha=check.alpha, power=_POWER, population=population
        )
    threshold = check.min if check.min is not None else 1 - (check.max or 0.0)
    return detectable_drop(budget, threshold, alpha=check.alpha, power=_POWER, population=population)
