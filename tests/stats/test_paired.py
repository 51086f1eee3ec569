"""Paired comparisons against scipy, statsmodels and the worked examples of the papers."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import NothingMeasuredError, SpecificationError
from assay.stats.intervals import clustered_standard_error
from assay.stats.paired import (
    Alternative,
    Flips,
    count_flips,
    mcnemar,
    newcombe_interval,
    paired_difference,
    sign_flip_test,
)

counts = st.integers(0, 300)


@pytest.mark.parametrize(
    ("lost", "gained", "p"),
    # statsmodels 0.15.0: mcnemar([[0, lost], [gained, 0]], exact=True).pvalue
    [(7, 1, 0.0703125), (3, 3, 1.0), (0, 5, 0.0625), (120, 90, 0.045114087864840696), (0, 0, 1.0)],
)
def test_mcnemar_equals_statsmodels(lost: int, gained: int, p: float) -> None:
    assert mcnemar(lost, gained) == pytest.approx(p, rel=1e-12)


def test_mcnemar_of_the_airway_example() -> None:
    """Fagerland et al. (2013), table 1: 1 and 7 discordant pairs; exact p 0.070, mid-p 0.039."""
    assert mcnemar(7, 1) == pytest.approx(0.0703, abs=5e-5)
    assert mcnemar(7, 1, mid_p=True) == pytest.approx(0.0391, abs=5e-5)
    assert mcnemar(7, 1, "worse") == pytest.approx(0.0703 / 2, abs=5e-5)


@pytest.mark.parametrize(
    ("flips", "low", "high"),
    [
        # Newcombe (1998), table II, method 10.
        (Flips(both_right=36, lost=2, gained=12, both_wrong=0), 0.0569, 0.3404),
        # Fagerland et al. (2014), Statistics in Medicine 33:2850: the airway example.
        (Flips(both_right=1, lost=7, gained=1, both_wrong=12), -0.507, -0.026),
    ],
)
def test_newcombe_interval_of_the_papers(flips: Flips, low: float, high: float) -> None:
    interval = newcombe_interval(flips)
    assert interval.low == pytest.approx(low, abs=5e-4)
    assert interval.high == pytest.approx(high, abs=5e-4)


@pytest.mark.parametrize(
    ("alternative", "p"),
    # scipy 1.17.1: permutation_test((d,), np.sum, permutation_type="samples", alternative="two-sided" | "less" | …)
    [("two-sided", 0.109375), ("worse", 0.9609375), ("better", 0.0546875)],
)
def test_sign_flip_test_equals_scipy(alternative: Alternative, p: float) -> None:
    assert sign_flip_test([0.5, -0.25, 0.75, 0.1, 0.0, 0.3, -0.05, 0.6], alternative) == pytest.approx(p)


def test_random_sign_flips_approach_all_of_them() -> None:
    differences = np.round(np.random.default_rng(3).normal(0.1, 0.4, 13), 3)
    exact = sign_flip_test(differences, draws=2**13)
    assert sign_flip_test(differences, draws=8000, seed=5) == pytest.approx(exact, abs=0.02)


@given(counts, counts)
def test_mcnemar_is_a_sign_flip_test(lost: int, gained: int) -> None:
    worse, better = mcnemar(lost, gained, "worse"), mcnemar(lost, gained, "better")
    assert mcnemar(gained, lost, "better") == worse
    assert mcnemar(lost, gained) == pytest.approx(min(1.0, 2 * min(worse, better)))
    for alternative in ("two-sided", "worse", "better"):
        assert 0 < mcnemar(lost, gained, alternative, mid_p=True) <= mcnemar(lost, gained, alternative) <= 1


def test_mcnemar_by_sign_flips() -> None:
    differences = [-1] * 6 + [1] * 2 + [0] * 50
    for alternative in ("two-sided", "worse", "better"):
        assert sign_flip_test(differences, alternative) == pytest.approx(mcnemar(6, 2, alternative))


def test_mcnemar_error_rate_is_exact() -> None:
    """Over all outcomes of 40 even flips: p ≤ α at most α of the time, mid-p about α of the time."""
    for alpha in (0.05, 0.01):
        exact = sum(comb(40, k) for k in range(41) if mcnemar(k, 40 - k, "worse") <= alpha) / 2**40
        mid = sum(comb(40, k) for k in range(41) if mcnemar(k, 40 - k, "worse", mid_p=True) <= alpha) / 2**40
        assert exact <= alpha
        assert exact <= mid <= 1.6 * alpha


@given(st.tuples(counts, counts, counts, counts).filter(any), st.floats(0.5, 0.999))
def test_newcombe_interval_holds_the_estimate(cells: tuple[int, int, int, int], confidence: float) -> None:
    flips = Flips(*cells)
    interval = newcombe_interval(flips, confidence)
    assert -1 <= interval.low <= (flips.gained - flips.lost) / flips.n <= interval.high <= 1


def test_pairing_is_millers_formula() -> None:
    random = np.random.default_rng(1)
    difficulty = random.random(400)
    before, after = (difficulty + random.normal(0, 0.1, 400) for _ in range(2))
    paired = paired_difference(before, after)
    a, b = before.std(ddof=1) / 20, after.std(ddof=1) / 20
    assert paired.standard_error == pytest.approx(np.sqrt(a * a + b * b - 2 * a * b * paired.correlation))
    assert paired.unpaired_standard_error == pytest.approx(np.hypot(a, b))
    assert paired.standard_error < 0.5 * paired.unpaired_standard_error
    assert paired.interval.low < paired.difference < paired.interval.high
    clusters = np.repeat(range(40), 10)
    clustered = paired_difference(before, after, clusters=clusters)
    assert clustered.standard_error == clustered_standard_error(after - before, clusters)


def test_flips_are_counted() -> None:
    assert count_flips([1, 1, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0]) == Flips(1, 2, 1, 2)


def test_constant_scores_have_no_correlation() -> None:
    assert paired_difference([1, 1, 1], [0, 1, 1]).correlation == 0.0


def test_nothing_differs() -> None:
    assert sign_flip_test([0, 0, 0]) == 1.0
    assert sign_flip_test([0.0], "worse") == 1.0


def test_impossible_input_is_an_error() -> None:
    computations: list[Callable[[], object]] = [
        lambda: count_flips([0.5], [1]),
        lambda: count_flips([1, 0], [1]),
        lambda: mcnemar(-1, 3),
        lambda: paired_difference([1, 0], [1]),
        lambda: sign_flip_test([float("inf")]),
    ]
    for compute in computations:
        with pytest.raises(SpecificationError):
            compute()
    nothing: list[Callable[[], object]] = [
        lambda: newcombe_interval(Flips(0, 0, 0, 0)),
        lambda: count_flips([], []),
        lambda: sign_flip_test([]),
    ]
    for compute in nothing:
        with pytest.raises(NothingMeasuredError):
            compute()
