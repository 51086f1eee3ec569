"""Interval for a weighted mean over strata, such as the subtasks of a group."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from assay.stats.intervals import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence


def stratified_interval(values: Sequence[float], intervals: Sequence[Interval], weights: Sequence[float]) -> Interval:
    """Combine the strata's own intervals into one for their weighted mean.

    By the method of variance estimates recovery: for estimates pᵢ in [lᵢ, uᵢ] and weights wᵢ that sum to 1, the ends
    are Σwᵢpᵢ − √Σ(wᵢ(pᵢ − lᵢ))² and Σwᵢpᵢ + √Σ(wᵢ(uᵢ − pᵢ))² (Zou and Donner 2008, Statistics in Medicine 27:1693).

    The strata are the benchmark's own and fixed: their differences are part of what is measured, not of its
    uncertainty.

    Args:
        values: Each stratum's estimate.
        intervals: Each stratum's interval, all of one confidence.
        weights: Each stratum's weight, not all 0; they need not sum to 1.
    """
    total = sum(weights)
    shares = [weight / total for weight in weights]
    centre = sum(share * value for share, value in zip(shares, values, strict=True))
    strata = list(zip(shares, values, intervals, strict=True))
    below = sqrt(sum((share * (value - interval.low)) ** 2 for share, value, interval in strata))
    above = sqrt(sum((share * (interval.high - value)) ** 2 for share, value, interval in strata))
    return Interval(low=centre - below, high=centre + above, confidence=intervals[0].confidence, method="stratified")
