"""Several checks that share one error rate: the chance that any of them is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import SpecificationError
from assay.stats.validate import count, probability

if TYPE_CHECKING:
    from collections.abc import Sequence


def bonferroni_alpha(alpha: float, checks: int) -> float:
    """The error rate that each of several checks may have so that all together have at most ``alpha``.

    Raises:
        SpecificationError: ``alpha`` is not a probability, or there are no checks.
    """
    return probability("alpha", alpha) / count("checks", checks, least=1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values by Holm (1979), Scand. J. Statist. 6:65: as safe as Bonferroni's and never greater.

    The smallest is multiplied by the number k of p-values, the next by k − 1, and so on; none may be less than the one
    before it. Anytime-valid p-values may be used at any one moment that all checks share.

    Raises:
        SpecificationError: A p-value is not between 0 and 1.
    """
    adjusted = list(_checked(p_values))
    greatest = 0.0
    for rank, index in enumerate(sorted(range(len(adjusted)), key=adjusted.__getitem__)):
        greatest = max(greatest, min(1.0, (len(adjusted) - rank) * p_values[index]))
        adjusted[index] = greatest
    return adjusted


def _checked(p_values: Sequence[float]) -> Sequence[float]:
    for p in p_values:
        if not 0.0 <= p <= 1.0:
            raise SpecificationError(f"p-value {p} does not lie between 0 and 1")
    return p_values
