"""The score that a check decides on, in exact arithmetic: a score that equals the threshold passes.

lm-eval averages floats, and a group's aggregate averages those averages again, so that a score of exactly 0.6 may come
out as 0.5999999999999999. Here sums, shares and weights are fractions, and only the result is rounded, to the nearest
float. A threshold is the float nearest to the number in the policy, so equal numbers stay equal.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.stats.validate import Support


class Stratum(NamedTuple):
    """One task's scores."""

    values: Sequence[Any]
    """One for each document that has a score."""
    failed: int


class ExactScore(NamedTuple):
    """A score, and the range in which it lies whatever the failed documents would have scored."""

    value: float
    """Mean over the documents that have scores."""
    low: float
    high: float


def exact_score(strata: Sequence[Stratum], support: Support | None, *, by_size: bool) -> ExactScore | None:
    """The mean over a check's documents.

    Args:
        strata: The check's tasks.
        support: Least and greatest score of a document; None if the range is not known.
        by_size: All documents count the same; else all tasks do.

    Returns:
        None if there is no such mean: a task has no score, a score is not a number, or documents failed and the range
        of scores is not known.
    """
    if not all(stratum.values and all(map(_is_number, stratum.values)) for stratum in strata):
        return None
    failed = sum(stratum.failed for stratum in strata)
    if failed and (support is None or any(not support[0] <= v <= support[1] for s in strata for v in s.values)):
        return None
    ends = support if failed and support is not None else (0.0, 0.0)
    totals = [exact_total(stratum.values) for stratum in strata]
    sizes = [len(stratum.values) for stratum in strata]
    low, high = (
        _mean(
            [total + stratum.failed * Fraction(end) for total, stratum in zip(totals, strata, strict=True)],
            [size + stratum.failed for size, stratum in zip(sizes, strata, strict=True)],
            by_size=by_size,
        )
        for end in ends
    )
    return ExactScore(_mean(totals, sizes, by_size=by_size), low, high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Fraction) and isfinite(value)


def exact_total(values: Iterable[int | float | Fraction]) -> Fraction:
    """The sum of scores, without rounding."""
    return sum((Fraction(value) * times for value, times in Counter(values).items()), Fraction(0))


def _mean(totals: Sequence[Fraction], sizes: Sequence[int], *, by_size: bool) -> float:
    if by_size:
        return float(sum(totals, Fraction(0)) / sum(sizes))
    shares = (total / size for total, size in zip(totals, sizes, strict=True))
    return float(sum(shares, Fraction(0)) / len(sizes))
