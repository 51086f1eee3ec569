"""Forecasts what a gate will be able to detect, before any request.

The expected numbers of documents are medians over simulated random orders. The simulated scores follow assumptions
about a healthy and a broken server, which are printed with the results. The smallest detectable drop comes from
:mod:`assay.stats.power`.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from assay.checks.against_baseline import mismatch_message
from assay.checks.scope import doubts_of, scope_of
from assay.checks.sequential import plan_of, why_not_early
from assay.errors import BaselineMismatchError, FileFormatError
from assay.gate.policy import Policy, load_policy, specifications
from assay.results.check_results import demand_of
from assay.stats.many import decide_many
from assay.stats.power import detectable_drop, detectable_loss
from assay.stats.sampling import permuted
from assay.tasks.metrics import metric_keys_by_name
from assay.tasks.selection import describe_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from assay.checks.scope import Scope
    from assay.stats.plans import SequentialPlan
    from assay.stats.validate import Support
    from assay.tasks.protocol import Task
    from assay.types import Check, Specification

_RUNS = 100
"""Simulated orders."""
_FLIPS = 0.02
"""Assumed share of answers that flip, either way, between two runs of a healthy server; ``assay calibrate`` measures
it."""
_LOSS_BEYOND_MARGIN = 0.10
_POWER = 0.8


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What one check can detect."""

    model: str
    task: str
    metric: str
    demand: str
    population: int
    """How many documents there are, after ``limit``."""
    budget: int
    """How many documents may be asked."""
    alpha: float | None
    """None if all documents decide, by arithmetic."""
    detectable: float | None
    """Smallest drop below the threshold, or loss against the baseline, that a fixed-size test of ``budget`` documents
    shows with probability 0.8. If all documents may be asked, the check is exact, and this is 0 or the margin. None if
    only the whole run decides."""
    healthy: str | None
    """The assumption about a healthy server; None if all documents decide and none is needed."""
    healthy_documents: int
    """Median number of documents asked of a healthy server."""
    broken: str | None
    """The assumption about a broken server."""
    broken_documents: int
    range: tuple[float, float] | None = None
    """Least and greatest score of a document, if known."""
    remarks: tuple[str, ...] = ()
    """Why the check cannot stop early, and which part of the benchmark it is about."""


def explain_gate(policy: Policy | str | Path) -> tuple[Outlook, ...]:
    """What each check of a policy can detect. No server is asked.

    Args:
        policy: what is demanded, or the TOML file that says it.

    Raises:
        UsageError: the policy is not valid, a task or metric does not exist, its data is missing, or a baseline cannot
            be read.
        BaselineMismatchError: a baseline that exists already has another task version or other settings.
    """
    policy = policy if isinstance(policy, Policy) else load_policy(policy)
    return tuple(outlook for name, run in specifications(policy).items() for outlook in explain(name, run))


def explain(name: str, specification: Specification) -> Iterator[Outlook]:
    """The outlook of every check of one model's run.

    Raises:
        UsageError: a task or metric does not exist, or its data is missing, or a baseline cannot be read.
        BaselineMismatchError: a baseline that exists already has another task version or other settings.
    """
    from assay.checks.planned import refuse_unchecked_tasks, refuse_unusable_baseline, request_changes
    from assay.checks.verdicts import resolve_checks
    from assay.runs.files import read_run
    from assay.specification import validate
    from assay.tasks.library import load_tasks
    from assay.tasks.lm_eval_lock import lm_eval_lock
    from assay.tasks.model_args import model_args
    from assay.tasks.selection import chosen_documents

    specification = validate(specification)
    with lm_eval_lock("explain_gate"):
        loaded = load_tasks(specification.tasks, specification.options, model_args(specification.model))
    chosen = chosen_documents(loaded.tasks, specification.options)
    sizes = {task: len(numbers) for task, numbers in chosen.items()}
    read_baseline = functools.cache(read_run)
    checks = resolve_checks(specification.checks, metric_keys_by_name(loaded), specification.tasks)
    scopes = [scope_of(check, loaded) for check in checks]
    if specification.early_stopping is not None:
        refuse_unchecked_tasks(scopes, loaded)
    for check, scope in zip(checks, scopes, strict=True):
        requests: list[str] = []
        if check.baseline is not None and not _is_absent(check.baseline):
            baseline = read_baseline(check.baseline)
            refuse_unusable_baseline(check, scope, baseline, loaded, specification.options)
            requests = request_changes(scope, baseline, loaded, specification.model)
            if requests and not check.allow_mismatch and not _may_adapt(specification):
                raise BaselineMismatchError(mismatch_message(requests))
        population = scope.population(sizes)
        stopping = specification.early_stopping
        limit = None if stopping is None else stopping.budget.documents
        budget = population if limit is None else min(limit, population)
        outlook = Outlook(
            model=name,
            task=check.task or "",
            metric=check.metric,
            demand=_demand(check),
            population=population,
            budget=budget,
            alpha=check.error_rate if stopping is not None and scope.may_stop_early else None,
            detectable=None,
            healthy=None,
            healthy_documents=population,
            broken=None,
            broken_documents=population,
            range=scope.range,
            remarks=(
                *_remarks(check, scope, [loaded.tasks[task] for task in scope.tasks], specification),
                *(f"the baseline was asked otherwise: {change}" for change in requests),
            ),
        )
        if scope.range is not None and scope.is_mean:
            outlook = _with_forecast(outlook, check, scope, sizes, may_stop=stopping is not None)
        yield outlook


def _remarks(check: Check, scope: Scope, tasks: list[Task], specification: Specification) -> Iterator[str]:
    yield from doubts_of(check, scope)
    stopping = specification.early_stopping
    if stopping is not None and not scope.may_stop_early:
        yield f"cannot stop early, asks all documents: {why_not_early(scope, check.metric)}"
    if (part := describe_part(tasks, specification.options)) is not None:
        choice = "limit" if specification.options.samples is None else "samples"
        yield (
            f"judges {part} only, which says nothing about the rest; for a verdict about all, replace {choice} by "
            "[budget] documents = N, which asks N at random"
        )
    limits = {} if stopping is None else msgspec.structs.asdict(stopping.budget)
    if limits := {name: value for name, value in limits.items() if value is not None and name != "documents"}:
        stated = " and ".join(f"{name} = {value:g}" for name, value in limits.items())
        yield f"[budget] {stated} may end the run earlier; after how many documents is not known in advance"


def _with_forecast(
    outlook: Outlook, check: Check, scope: Scope, sizes: Mapping[str, int], *, may_stop: bool
) -> Outlook:
    """The outlook with forecasts for a healthy and for a broken server, equally good or bad in all tasks."""
    population, (low, high) = outlook.population, scope.range or (0.0, 1.0)
    width = high - low
    counts, by_task = [sizes[task] for task in scope.tasks], scope.weights(sizes)
    weights = np.repeat([float(by_task[task]) for task in scope.tasks], counts)
    if check.baseline is None:
        shares = _likely_shares(check, (low, high))
        words = [f"score {low + width * share:.3f}" for share in shares]
        scores = [low + width * np.concatenate([_shares(n, share) for n in counts]) for share in shares]
    else:
        loss = min((check.margin or 0.0) / width + _LOSS_BEYOND_MARGIN, 1.0)
        words = [f"{_FLIPS:.0%} of answers flip evenly", f"{width * loss:.3f} worse"]
        sign = width if scope.higher_is_better else -width
        scores = [
            scale * np.concatenate([_differences(n, each) for n in counts])
            for scale, each in ((width, 0.0), (sign, loss))
        ]
    documents = [population, population]
    if may_stop:
        plan = plan_of(check, scope, population, by_task)
        documents = [_median_documents(plan, values, weights) for values in scores]
    return msgspec.structs.replace(
        outlook,
        detectable=_detectable(check, outlook, (low, high), weights)
        if may_stop or outlook.budget == population
        else None,
        healthy=words[0],
        healthy_documents=documents[0],
        broken=words[1],
        broken_documents=documents[1],
    )


def _may_adapt(specification: Specification) -> bool:
    """Whether the probe before the run may still change requests, to what the server wants."""
    return specification.probe and specification.model.dialect == "auto"


def _demand(check: Check) -> str:
    is_absent = check.baseline is not None and _is_absent(check.baseline)
    return f"{demand_of(check)}{', which is not there yet' if is_absent else ''}"


def _is_absent(baseline: str) -> bool:
    """Whether the baseline does not exist yet: a margin may be chosen before it is made."""
    from assay.runs.files import named_run

    try:
        return not os.path.lexists(named_run(baseline))
    except FileFormatError:
        return True


def _likely_shares(check: Check, limits: Support) -> tuple[float, float]:
    """Scores of a healthy and a broken server as shares of the range: a little better than demanded, and half of it."""
    threshold = _as_share(check.min if check.min is not None else check.max or 0.0, limits)
    if check.min is not None:
        return min(threshold + 0.1, (1 + threshold) / 2), threshold / 2
    return max(threshold - 0.1, threshold / 2), (1 + threshold) / 2


def _as_share(score: float, limits: Support) -> float:
    low, high = limits
    return (score - low) / (high - low)


def _shares(population: int, share: float) -> NDArray[np.float64]:
    return (np.arange(population) < round(share * population)).astype(np.float64)


def _differences(population: int, loss: float) -> NDArray[np.float64]:
    """Differences of a server with a healthy one's flips and a loss on top."""
    gained = round(population * _FLIPS / 2)
    lost = min(gained + round(loss * population), population - gained)
    differences = np.zeros(population)
    differences[:gained] = 1.0
    differences[gained : gained + lost] = -1.0
    return differences


def _median_documents(plan: SequentialPlan, values: NDArray[np.float64], weights: NDArray[np.float64]) -> int:
    orders = permuted(np.arange(values.size, dtype=np.float64), _RUNS, seed=0).astype(np.int64)
    _, documents = decide_many(plan, values[orders], weights=weights[orders])
    return int(np.median(documents))


def _detectable(check: Check, outlook: Outlook, limits: Support, weights: NDArray[np.float64]) -> float:
    # Documents of unequal weight are worth this share of as many of equal weight (Kish 1965).
    worth = 1 / float(np.mean(weights**2))
    budget, population = (max(round(worth * count), 1) for count in (outlook.budget, outlook.population))
    width = limits[1] - limits[0]
    if check.baseline is not None:
        margin = (check.margin or 0.0) / width
        return width * detectable_loss(
            budget, _FLIPS, margin=margin, alpha=check.error_rate, power=_POWER, population=population
        )
    share = _as_share(check.min if check.min is not None else check.max or 0.0, limits)
    threshold = share if check.min is not None else 1 - share
    return width * detectable_drop(budget, threshold, alpha=check.error_rate, power=_POWER, population=population)
