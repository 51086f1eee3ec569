"""The slice test keeps its error rate, and finds what is there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hypergeom

from assay.errors import NothingMeasuredError
from assay.stats.slices import worse_slice


def test_one_stratum_of_right_or_wrong_scores_is_exact() -> None:
    generator = np.random.default_rng(0)
    for _ in range(30):
        scores = (generator.random(120) < 0.6).astype(float)
        inside = generator.random(120) < 0.3
        expected = hypergeom.cdf(scores[inside].sum(), 120, int(scores.sum()), int(inside.sum()))
        assert worse_slice(scores, inside) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("graded", [False, True])
def test_the_error_rate_holds_within_strata(graded: bool) -> None:
    generator = np.random.default_rng(1)
    strata = np.repeat([0, 1, 2], [200, 60, 140])
    hits = 0
    for _ in range(2000):
        level = np.array([0.9, 0.2, 0.5])[strata]
        scores = (
            np.clip(level + 0.2 * generator.standard_normal(400), 0, 1) if graded else generator.random(400) < level
        )
        # The slice holds more of the hard stratum: no reason to be blamed.
        inside = generator.random(400) < np.array([0.1, 0.5, 0.2])[strata]
        hits += worse_slice(np.asarray(scores, dtype=float), inside, list(strata)) < 0.01
    assert hits <= 32  # Of 20 expected; 99.6 % of binomial draws.


def test_a_worse_slice_is_found() -> None:
    generator = np.random.default_rng(2)
    strata = np.repeat([0, 1], 150)
    inside = generator.random(300) < 0.3
    scores = (generator.random(300) < np.where(inside, 0.3, 0.8)).astype(float)
    assert worse_slice(scores, inside, list(strata)) < 1e-6
    assert worse_slice(scores, ~inside, list(strata)) > 0.99


def test_where_nothing_can_be_told() -> None:
    assert worse_slice([1.0, 0.0], [True, True]) == 1.0
    assert worse_slice([1.0, 0.0], [False, False]) == 1.0
    assert worse_slice([1.0, 1.0], [True, False]) == 1.0
    assert worse_slice([1.0, 0.0, 0.5], [True, False, False], ["a", "b", "c"]) == 1.0
    with pytest.raises(NothingMeasuredError):
        worse_slice([], [])
