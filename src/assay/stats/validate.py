"""What the functions of this package accept, checked in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assay.errors import NothingMeasuredError, SpecificationError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Support = tuple[float, float]
"""The least and the greatest value that a score can take."""

UNBOUNDED: Support = (-np.inf, np.inf)
"""The support of a score of which nothing is known."""


def finite_values(values: ArrayLike, support: Support = UNBOUNDED) -> NDArray[np.float64]:
    """Return the values as a one-dimensional array of floats.

    Raises:
        NothingMeasuredError: There are none.
        SpecificationError: They are not one-dimensional, or one is not a number or lies outside ``support``.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise SpecificationError(f"scores must be a flat list, not an array of shape {array.shape}")
    if array.size == 0:
        raise NothingMeasuredError("there is no score to compute with: not one sample was scored")
    low, high = support
    wrong = ~(np.isfinite(array) & (array >= low) & (array <= high))
    if wrong.any():
        index = int(np.argmax(wrong))
        raise SpecificationError(
            f"score {array[index]} at position {index} is not a number between {low:g} and {high:g}"
        )
    return array


def probability(name: str, value: float) -> float:
    """Return ``value`` if it lies strictly between 0 and 1.

    Raises:
        SpecificationError: It does not.
    """
    if not 0.0 < value < 1.0:
        raise SpecificationError(f"{name} is {value}; it must lie between 0 and 1, for example 0.01 or 0.95")
    return float(value)


def count(name: str, value: int, least: int = 0) -> int:
    """Return ``value`` if it is a whole number of at least ``least``.

    Raises:
        SpecificationError: It is not.
    """
    if value != int(value) or value < least:
        raise SpecificationError(f"{name} is {value}; it must be a whole number of at least {least}")
    return int(value)
