"""Tests whether one slice of the samples scores worse than the rest of the same strata.

Sources: Mantel and Haenszel (1959), J. Natl. Cancer Inst. 22:719 (strata); Strasser and Weber (1999), Math. Methods
Statist. 8:220 (mean and variance of a sum over a random subset, the strata's scores being given).
"""

from __future__ import annotations

from itertools import pairwise
from math import erfc, exp, fsum, lgamma, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.stats.validate import finite_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


def worse_slice(values: ArrayLike, in_slice: ArrayLike, strata: Sequence[Any] | None = None) -> float:
    """One-sided p-value: the chance that a random part of each stratum has a mean as low as the slice's.

    Exact (hypergeometric) where there is one stratum and only two distinct values; else by the normal approximation
    with a correction for continuity of half the smallest step.

    Args:
        values: one for each sample.
        in_slice: whether the sample is in the slice.
        strata: each sample's stratum, a task for example; None: all samples are alike.

    Returns:
        The p-value; 1 if the slice is empty, has all samples, or the values never vary.

    Raises:
        NothingMeasuredError: There are no values.
        SpecificationError: A value is not finite.
    """
    scores = finite_values(values)
    inside = np.asarray(in_slice, dtype=bool)
    groups = np.zeros(len(scores), dtype=np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    distinct = sorted(set(scores.tolist()))  # np.unique imports numpy.ma, which takes longer than all slices of a run
    if len(distinct) == 1 or not inside.any() or inside.all():
        return 1.0
    if len(distinct) == 2 and not groups.any():
        return _exact(scores == distinct[1], inside)
    return _approximate(scores, inside, groups, min(high - low for low, high in pairwise(distinct)))


def _exact(is_high: np.ndarray[Any, Any], inside: np.ndarray[Any, Any]) -> float:
    """The hypergeometric distribution function: the chance of as few high values in the slice, or fewer."""
    total, high, taken = len(inside), int(is_high.sum()), int(inside.sum())
    seen = int((is_high & inside).sum())
    possible = range(max(0, taken - (total - high)), seen + 1)
    ways = _log_binomial(total, taken)
    terms = (_log_binomial(high, k) + _log_binomial(total - high, taken - k) - ways for k in possible)
    return min(1.0, fsum(map(exp, terms)))


def _log_binomial(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _approximate(
    scores: np.ndarray[Any, Any], inside: np.ndarray[Any, Any], groups: np.ndarray[Any, Any], step: float
) -> float:
    excess = variance = 0.0
    for group in range(groups.max() + 1):
        ours = scores[groups == group]
        chosen = inside[groups == group]
        total, taken = len(ours), int(chosen.sum())
        excess += float(ours[chosen].sum()) - taken * float(ours.mean())
        if total > 1:
            variance += taken * (total - taken) / (total - 1) * float(ours.var())
    if variance <= 0:
        return 1.0
    return erfc(-(excess + step / 2) / sqrt(2 * variance)) / 2
