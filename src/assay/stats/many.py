"""Simulates one plan in many random orders at once, for planning, forecasts and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assay.errors import SpecificationError
from assay.stats.betting import BLOCK
from assay.stats.plans import Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.stats.betting import Portfolio
    from assay.stats.plans import SequentialPlan

    Floats = NDArray[np.float64]


def decide_many(
    plan: SequentialPlan, orders: Floats, alphas: Sequence[float] | None = None, *, weights: Floats | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Simulate a plan in many random orders at once: how often it passes, and after how many documents.

    For planning and for simulations: "how many documents would this check need if the server were healthy?" is
    ``decide_many(plan, permuted(baseline_scores, runs, seed))``.

    Args:
        plan: The plan; its ``alpha`` is used unless ``alphas`` are given.
        orders: Shape (runs, N): each row all N scores of a benchmark in the order asked. None may be missing.
        alphas: Error rates to try at once.
        weights: The documents' weights, of the same shape; None if all count the same.

    Returns:
        Two arrays of shape (runs, number of alphas): whether it passed (else it failed), after how many documents.

    Raises:
        SpecificationError: ``orders`` has not N columns, or a score is missing or not one that the plan allows.
    """
    if orders.ndim != 2 or orders.shape[1] != plan.population:
        raise SpecificationError(f"orders have shape {orders.shape}; each row needs {plan.population} scores")
    if np.isnan(orders).any():
        raise SpecificationError("orders must hold a score for every document")
    plan.check(orders)
    each = np.ones_like(orders) if weights is None else weights
    evidence = plan.gains_and_losses(orders, each)
    for_pass, for_fail = np.stack(
        [
            first_crossings(plan.portfolio(orders.shape[0], alpha), evidence, 1 / alpha)
            for alpha in ([plan.alpha] if alphas is None else alphas)
        ],
        axis=2,
    )
    passed, documents = for_pass < for_fail, np.minimum(for_pass, for_fail)
    # The last document brings certainty, whatever the wealth.
    for run in np.flatnonzero((documents >= plan.population).any(axis=1)):
        exact = plan.decide_exactly(orders[run], each[run].tolist()) is Decision.PASS
        passed[run, documents[run] >= plan.population] = exact
    return passed, np.minimum(documents, plan.population)


def first_crossings(portfolio: Portfolio, evidence: Floats, bar: float) -> NDArray[np.int64]:
    """After how many values each side first reaches the bar; more than there are values where it never does.

    A run is followed until it is decided one way or the other.

    Args:
        portfolio: As from :meth:`SequentialPlan.portfolio`, for as many runs.
        evidence: Shape (2, runs, n), as from :meth:`SequentialPlan.gains_and_losses`.
        bar: The wealth to be reached.

    Returns:
        Shape (2, runs).
    """
    _, runs, n = evidence.shape
    crossings = np.full((2, runs), n + 1, dtype=np.int64)
    going = np.arange(runs)
    for start in range(0, n, BLOCK):
        block = evidence[:, going, start : start + BLOCK]
        reached = portfolio.advance(block.reshape(2 * going.size, -1)).reshape(block.shape) >= bar
        at = np.where(reached.any(axis=2), start + reached.argmax(axis=2) + 1, n + 1)
        crossings[:, going] = np.minimum(crossings[:, going], at)
        undecided = crossings[:, going].min(axis=0) > n
        if not undecided.any():
            break
        portfolio = portfolio.keep(np.tile(undecided, 2))
        going = going[undecided]
    return crossings
