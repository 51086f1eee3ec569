"""Intervals against scipy and statsmodels, and the properties that no reference value shows.

Reference values: scipy 1.17.1 and statsmodels 0.15.0, with the calls named beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import NothingMeasuredError, SpecificationError
from assay.stats.intervals import (
    Interval,
    clustered_mean_interval,
    clustered_standard_error,
    failure_bounds,
    mean_interval,
    standard_error,
    wilson,
)

SCORES = [0.1, 0.4, 0.35, 0.8, 0.9, 0.2, 0.7, 0.65]
CLUSTERS = [0, 0, 1, 1, 1, 2, 2, 3]

scores = st.floats(0, 1, allow_subnormal=False)
confidences = st.floats(0.5, 0.9999)


@st.composite
def successes_of(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 2000))
    return draw(st.integers(0, n)), n


@pytest.mark.parametrize(
    ("successes", "n", "confidence", "ends"),
    # proportion_confint(successes, n, 1 - confidence, "wilson")
    [
        (0, 10, 0.95, (0.0, 0.2775327998628892)),
        (3, 10, 0.95, (0.10779126740630099, 0.6032218525388546)),
        (574, 1319, 0.99, (0.4004263673484536, 0.4705788389580109)),
        (1319, 1319, 0.9, (0.9979529907644749, 1.0)),
        (1, 1, 0.95, (0.20654931437723745, 1.0)),
    ],
)
def test_share_intervals_equal_statsmodels(
    successes: int, n: int, confidence: float, ends: tuple[float, float]
) -> None:
    interval = wilson(successes, n, confidence)
    assert (interval.low, interval.high) == pytest.approx(ends, abs=1e-12)


def test_mean_interval_equals_scipy() -> None:
    # scipy.stats.sem(SCORES); scipy.stats.t.interval(0.9, len(SCORES) - 1, mean, sem)
    assert standard_error(SCORES) == pytest.approx(0.10296930888098925)
    interval = mean_interval(SCORES, 0.9)
    assert (interval.low, interval.high) == pytest.approx((0.31741655041317335, 0.7075834495868265))


def test_clustered_interval_equals_statsmodels() -> None:
    # OLS(SCORES, ones).fit(cov_type="cluster", cov_kwds={"groups": CLUSTERS}, use_t=True): bse, conf_int(0.05)
    assert clustered_standard_error(SCORES, CLUSTERS) == pytest.approx(0.10924099, abs=5e-9)
    interval = clustered_mean_interval(SCORES, CLUSTERS, 0.95)
    assert (interval.low, interval.high) == pytest.approx((0.16484642, 0.86015358), abs=5e-9)


def test_clusters_of_one_are_no_clusters() -> None:
    assert clustered_standard_error(SCORES, list("abcdefgh")) == pytest.approx(standard_error(SCORES))


def test_repeated_answers_count_once() -> None:
    thrice = np.repeat(SCORES, 3)
    assert clustered_standard_error(thrice, np.repeat(range(8), 3)) == pytest.approx(standard_error(SCORES))
    assert standard_error(thrice) < 0.6 * standard_error(SCORES)


def test_one_value_or_one_cluster_tells_nothing_of_spread() -> None:
    assert mean_interval([0.5], support=(0, 1)) == Interval(0.0, 1.0, 0.95, "t")
    assert clustered_mean_interval([0, 1], ["a", "a"], support=(0, 1)) == Interval(0.0, 1.0, 0.95, "clustered")
    assert mean_interval([0.5]).low == -math.inf


def test_failures_may_have_scored_anything() -> None:
    assert failure_bounds(3, 5, 2) == Interval(3 / 7, 5 / 7, 1.0, "failure bounds")
    assert failure_bounds(3, 5, 0) == Interval(0.6, 0.6, 1.0, "failure bounds")
    assert failure_bounds(0, 0, 4) == Interval(0.0, 1.0, 1.0, "failure bounds")
    assert failure_bounds(-1, 2, 2, support=(-1, 1)) == Interval(-0.75, 0.25, 1.0, "failure bounds")


@given(successes_of(), confidences)
def test_share_intervals_hold_the_estimate(counts: tuple[int, int], confidence: float) -> None:
    successes, n = counts
    interval = wilson(successes, n, confidence)
    assert 0 <= interval.low <= successes / n <= interval.high <= 1
    assert interval.low < interval.high


@given(successes_of(), confidences)
def test_share_intervals_mirror(counts: tuple[int, int], confidence: float) -> None:
    successes, n = counts
    there, back = wilson(successes, n, confidence), wilson(n - successes, n, confidence)
    assert (there.low, there.high) == pytest.approx((1 - back.high, 1 - back.low), abs=1e-9)


@given(st.lists(scores, min_size=1, max_size=40), st.data(), confidences)
def test_mean_intervals_hold_the_estimate(values: list[float], data: st.DataObject, confidence: float) -> None:
    clusters = data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)))
    mean = float(np.mean(values))
    for interval in (
        mean_interval(values, confidence, (0, 1)),
        clustered_mean_interval(values, clusters, confidence, (0, 1)),
    ):
        assert 0 <= interval.low <= mean <= interval.high <= 1


@given(st.lists(scores, min_size=1, max_size=40), st.integers(0, 50), st.integers(0, 50))
def test_failures_only_widen(values: list[float], some: int, more: int) -> None:
    narrow, wide = (failure_bounds(sum(values), len(values), failed) for failed in (some, some + more))
    assert wide.low <= narrow.low + 1e-12
    assert narrow.high - 1e-12 <= wide.high


@given(st.lists(scores, min_size=1, max_size=20), st.lists(scores, max_size=20))
def test_failure_bounds_hold_whatever_the_failed_would_have_scored(scored: list[float], failed: list[float]) -> None:
    bounds = failure_bounds(sum(scored), len(scored), len(failed))
    everything = float(np.mean(scored + failed))
    assert bounds.low - 1e-9 <= everything <= bounds.high + 1e-9


def test_coverage_of_share_intervals() -> None:
    """Over all outcomes of n = 30, Wilson's interval covers on average as often as it says."""
    n, shares = 30, np.linspace(0.02, 0.98, 97)
    intervals = [wilson(k, n, 0.9) for k in range(n + 1)]
    chances = [[math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)] for p in shares]
    coverage = [
        sum(chance for chance, i in zip(row, intervals, strict=True) if i.low <= p <= i.high)
        for p, row in zip(shares, chances, strict=True)
    ]
    assert np.mean(coverage) == pytest.approx(0.9, abs=0.01)


def test_nothing_measured_is_an_error() -> None:
    computations: list[Callable[[], object]] = [
        lambda: wilson(0, 0),
        lambda: mean_interval([]),
        lambda: clustered_mean_interval([], []),
        lambda: failure_bounds(0, 0, 0),
    ]
    for compute in computations:
        with pytest.raises(NothingMeasuredError):
            compute()


def test_impossible_input_is_an_error() -> None:
    computations: list[Callable[[], object]] = [
        lambda: wilson(11, 10),
        lambda: wilson(-1, 10),
        lambda: wilson(3, 10, 95),
        lambda: mean_interval([0.5, 1.5], support=(0, 1)),
        lambda: mean_interval([0.5, float("nan")]),
        lambda: mean_interval([[0.5], [1.0]]),
        lambda: clustered_mean_interval([0.5, 0.7], [1]),
        lambda: failure_bounds(7, 5, 1),
        lambda: failure_bounds(3, 5, -1),
    ]
    for compute in computations:
        with pytest.raises(SpecificationError):
            compute()
