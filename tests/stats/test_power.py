"""Sample sizes against statsmodels and Miller's worked example, and by simulation."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import SpecificationError
from assay.stats.intervals import normal_quantile
from assay.stats.power import (
    detectable_drop,
    detectable_loss,
    required_n,
    required_n_for_margin,
    required_n_for_threshold,
)


def test_millers_worked_example() -> None:
    """Miller (2024), section 5: ω² = 1/9, a difference of 3 points, α = 0.05 two-sided, power 0.8: 969 questions."""
    assert required_n(0.03, sqrt(1 / 9), alpha=0.05, power=0.8, sides=2) == 969


def test_threshold_equals_statsmodels() -> None:
    # statsmodels 0.15.0: normal_sample_size_one_tail(0.1, 0.8, 0.05, √(.435·.565), √(.335·.665))
    assert required_n_for_threshold(0.435, 0.335) == 148  # 147.06


def test_power_is_reached_in_simulation() -> None:
    threshold, score, random = 0.6, 0.5, np.random.default_rng(2)
    n = required_n_for_threshold(threshold, score, alpha=0.05, power=0.9)
    shares = random.binomial(n, score, 20_000) / n
    z = (threshold - shares) / sqrt(threshold * (1 - threshold) / n)
    assert (z >= normal_quantile(0.95)).mean() == pytest.approx(0.9, abs=0.02)


def test_margin_power_is_reached_in_simulation() -> None:
    margin, flips, random = 0.03, 0.1, np.random.default_rng(2)
    n = required_n_for_margin(margin, flips, alpha=0.05, power=0.9)
    lost, gained, _ = random.multinomial(n, [flips / 2, flips / 2, 1 - flips], 20_000).T
    z = ((gained - lost) / n + margin) / sqrt((flips - margin**2) / n)
    assert (z >= normal_quantile(0.95)).mean() == pytest.approx(0.9, abs=0.02)


def test_part_of_a_finite_benchmark() -> None:
    assert required_n_for_threshold(0.5, 0.49, population=1000) < 1000 < required_n_for_threshold(0.5, 0.49)
    assert detectable_drop(1000, 0.5, population=1000) == 0.0
    assert detectable_drop(900, 0.5, population=1000) < detectable_drop(900, 0.5)


@given(st.integers(5, 5000), st.floats(0.05, 0.95))
def test_detectable_drop_needs_that_many(n: int, threshold: float) -> None:
    drop = detectable_drop(n, threshold)
    if drop < threshold - 1e-5:
        assert n - 1 <= required_n_for_threshold(threshold, threshold - drop) <= n


@given(st.integers(5, 5000), st.floats(0.0, 0.3), st.floats(0.0, 0.1))
def test_detectable_loss_needs_that_many(n: int, flip_rate: float, margin: float) -> None:
    loss = detectable_loss(n, flip_rate, margin=margin)
    assert margin <= loss <= 1
    if loss < 1 - 1e-5:
        assert required_n_for_margin(margin, max(flip_rate, loss), difference=-loss) <= n


def test_more_documents_see_less() -> None:
    assert detectable_drop(50, 0.435) > detectable_drop(200, 0.435) > detectable_drop(1319, 0.435) > 0
    assert detectable_loss(200, 0.02) < detectable_loss(200, 0.1)


def test_impossible_input_is_an_error() -> None:
    for compute in (
        lambda: required_n(0.0, 0.5),
        lambda: required_n(0.1, 0.5, alpha=5),
        lambda: required_n_for_threshold(0.5, 1.5),
        lambda: required_n_for_margin(0.03, 0.01, difference=-0.05),
        lambda: detectable_drop(0, 0.5),
        lambda: detectable_loss(100, 1.5),
    ):
        with pytest.raises(SpecificationError):
            compute()
