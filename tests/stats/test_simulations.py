"""Small versions of what docs/statistics.md shows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulate_rivals import ALPHAS as RIVAL_ALPHAS
from benchmarks.simulate_rivals import RIVALS, N, documents
from benchmarks.simulate_scores import ALPHAS, Setting, exact_groups, settings, unbounded, wrong_decisions
from tests.stats.test_error_rates import most_errors, right_or_wrong

RUNS = 60


@pytest.mark.parametrize("setting", list(settings()), ids=lambda setting: setting.name)
def test_other_scores_keep_the_error_rate(setting: Setting) -> None:
    for threshold in setting.thresholds:
        for higher in (True, False):
            rates = wrong_decisions(setting, threshold, higher=higher, runs=RUNS)
            for rate, alpha in zip(rates, ALPHAS, strict=True):
                assert rate * RUNS <= most_errors(RUNS, alpha)


def test_nothing_is_decided_early_of_scores_without_a_range() -> None:
    assert unbounded(3) == ["0 %", "0 %", "0 %", "3"]


def test_groups_meet_their_own_mean() -> None:
    exact, floats = exact_groups(300).splitlines()[2:]
    assert exact.startswith("| exact fractions, rounded once | 0 |")
    assert " | 0 | " not in floats


@pytest.mark.parametrize(
    ("name", "score", "known"),
    # Exact, by dynamic programming over all counts of right answers: at α = 1 % and 0.1 %.
    [("SPRT ±.05", 0.38, (447.2, 577.7)), ("SPRT ±.2", 0.6, (82.5, 118.8)), ("SPRT ±.2", 0.0, (16.0, 23.0))],
)
def test_rivals_are_what_they_are_called(name: str, score: float, known: tuple[float, float]) -> None:
    orders = np.random.default_rng(2).permuted(np.tile(right_or_wrong(N, round(score * N)), (100, 1)), axis=1)
    for alpha, expected in zip(RIVAL_ALPHAS, known, strict=True):
        assert documents(RIVALS[name], orders, alpha) == pytest.approx(expected, rel=0.25)
