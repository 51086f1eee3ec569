"""Errors are placed where they begin, at every so many places, or throughout."""

from __future__ import annotations

import numpy as np
import pytest

from assay.stats.error_places import ErrorPlace, error_place

ANSWERS, TOKENS = 8, 24


def errors(seed: int, worse: float = 20.0, begins: int = 0, period: int | None = None) -> list[list[float]]:
    """Of answers that stand after 10, 11, … tokens: chi-squared, and so many times worse where the fault is."""
    rng = np.random.default_rng(seed)

    def is_hit(start: int, place: int) -> bool:
        return place >= begins and (period is None or (start + place) % period == 3)

    return [
        [0.001 * float(rng.chisquare(1)) * (worse if is_hit(start, place) else 1) for place in range(TOKENS)]
        for start in STARTS
    ]


STARTS = list(range(10, 10 + ANSWERS))


@pytest.mark.parametrize("begins", [1, 4, 8, 20])
@pytest.mark.parametrize("seed", range(5))
def test_the_first_bad_place_is_found_within_one(begins: int, seed: int) -> None:
    found = error_place(errors(seed, begins=begins, worse=100), STARTS)
    assert found.period is None
    assert abs(found.begins - begins) <= 1


@pytest.mark.parametrize("period", [8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_a_period_is_found_in_the_whole_sequence(period: int, seed: int) -> None:
    assert error_place(errors(seed, period=period, worse=200), STARTS) == ErrorPlace(0, period, 3)


@pytest.mark.parametrize("seed", range(5))
def test_errors_that_are_everywhere_have_no_place(seed: int) -> None:
    assert error_place(errors(seed), STARTS) == ErrorPlace(0)


def test_without_known_starts_no_period_is_told() -> None:
    assert error_place(errors(0, period=8, worse=200), [None] * ANSWERS).period is None
    assert error_place([], []) == ErrorPlace(0)
    assert error_place([[0.0, 0.0]], [3]) == ErrorPlace(0)
