"""Where in sequences errors stand: from one place on, at every so many places, or throughout.

Each of these splits all values into two groups. The split that explains most of their variance is named (of a change
point, the least-squares estimate: Hinkley (1970), "Inference about the change-point in a sequence of random variables",
Biometrika 57:1), if its group is clearly worse than the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_PERIODS = (8, 16, 32, 64, 128)
_TIMES_WORSE = 3.0
_NEGLIGIBLE = 100.0
"""Errors smaller than the mean by this factor count alike."""
_SURELY = 20.0
"""A split must explain so many variances of what it leaves: by chance the best of 300 does once in some 500 cases."""


class ErrorPlace(NamedTuple):
    """Where the errors are."""

    begins: int
    """The first place in an answer, from 0."""
    period: int | None = None
    """Only where the place in the whole sequence leaves ``remainder`` when divided by this."""
    remainder: int = 0


def error_place(answers: Sequence[Sequence[float]], starts: Sequence[int | None]) -> ErrorPlace:
    """Where errors stand in answers.

    Args:
        answers: of each, its errors by place, at least 0.
        starts: how many tokens stand before each answer, where that is known.

    Returns:
        Beginning 0 without a period if no split explains them.
    """
    errors = np.array([value for answer in answers for value in answer])
    places = np.array([place for answer in answers for place in range(len(answer))])
    in_sequence = None
    known = [start for start in starts if start is not None]
    if len(known) == len(starts):
        in_sequence = np.array(
            [start + place for answer, start in zip(answers, known, strict=True) for place in range(len(answer))]
        )
    best, most = ErrorPlace(0), 0.0
    sizes = np.log(errors + errors.mean() / _NEGLIGIBLE) if errors.any() else errors
    for split, is_in in _splits(places, in_sequence):
        inside, outside = sizes[is_in], sizes[~is_in]
        if len(inside) < 2 or len(outside) < 2 or errors[is_in].mean() < _TIMES_WORSE * errors[~is_in].mean():
            continue
        explained = len(inside) * len(outside) / len(sizes) * (inside.mean() - outside.mean()) ** 2
        left = len(inside) * inside.var() + len(outside) * outside.var()
        if explained > max(most, _SURELY * left / len(sizes)):
            best, most = split, explained
    return best


def _splits(
    places: NDArray[np.int_], in_sequence: NDArray[np.int_] | None
) -> Iterator[tuple[ErrorPlace, NDArray[np.bool_]]]:
    for begins in range(1, int(places.max(initial=0)) + 1):
        yield ErrorPlace(begins), places >= begins
    if in_sequence is None:
        return
    for period in _PERIODS:
        for remainder in range(period):
            yield ErrorPlace(0, period, remainder), in_sequence % period == remainder
