"""How the evidence of a sequential test grew, document by document, thinned to what a plot can show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from assay.stats.sequential import confidence_sequence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.stats.sequential import SequentialTest

_FIRST = 40
"""All of the first documents are kept, because most is decided there."""
_MOST = 240
_STRONGEST = 12.0
"""Evidence is shown up to ten to this power; a wealth can be infinite."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """A test's evidence after some of its documents. All tuples have one entry for each entry of ``seen``."""

    threshold: float
    alpha: float
    population: int
    higher_is_better: bool
    seen: tuple[int, ...]
    """After how many documents."""
    estimate: tuple[float | None, ...]
    """Mean score (or difference) so far; None while no document has one."""
    low: tuple[float, ...]
    """Lower end of the confidence sequence. It holds at all places at once, each end with probability 1 − α."""
    high: tuple[float, ...]
    for_pass: tuple[float, ...]
    """Decimal logarithm of the evidence against "should not pass"; log10(1/α) decides."""
    for_fail: tuple[float, ...]


def course_of(test: SequentialTest) -> Course:
    """The course of a test so far."""
    plan, scores, weights = test.plan, test.scores, test.weights
    kept = _kept(scores.size)
    scored = ~np.isnan(scores)
    sums = np.cumsum(np.where(scored, scores * weights, 0.0))[kept]
    totals = np.cumsum(np.where(scored, weights, 0.0))[kept]
    estimates = [float(part / of) if of else None for part, of in zip(sums, totals, strict=True)]
    low, high = (ends[kept] for ends in confidence_sequence(plan, scores, weights))
    known = np.array([np.nan if estimate is None else estimate for estimate in estimates])
    for_pass, for_fail = (_logarithms(wealths)[kept] for wealths in test.wealths)
    return Course(
        threshold=plan.threshold,
        alpha=plan.alpha,
        population=plan.population,
        higher_is_better=plan.higher_is_better,
        seen=tuple((kept + 1).tolist()),
        estimate=tuple(estimates),
        low=tuple(np.fmin(low, known).tolist()),
        high=tuple(np.fmax(high, known).tolist()),
        for_pass=tuple(for_pass.tolist()),
        for_fail=tuple(for_fail.tolist()),
    )


def _kept(seen: int) -> NDArray[np.int64]:
    """Which documents are kept, counted from 0; the last one always is."""
    if seen <= _MOST:
        return np.arange(seen)
    spread = np.linspace(_FIRST, seen - 1, _MOST - _FIRST).round().astype(np.int64)
    return np.unique(np.concatenate([np.arange(_FIRST), spread]))


def _logarithms(wealths: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.clip(np.log10(wealths), -_STRONGEST, _STRONGEST)
