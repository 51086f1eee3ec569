"""The wealth process against confseq, the authors' own code, and by counting all orders of small populations."""

from __future__ import annotations

from itertools import permutations
from math import comb, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats import betting
from assay.stats.betting import (
    Portfolio,
    Stakes,
    difference_stakes,
    lower_confidence_bound,
    lower_confidence_sequence,
    score_stakes,
)

VALUES = np.array([1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0.25, 0.75, 0.5, 1, 0, 0, 1, 1, 1, 1.0])


@pytest.mark.parametrize(
    ("shares", "weights", "wealths"),
    # confseq 0.0.11 with λ_t = share/m_t: diversified_betting_mart(VALUES, 0.4, [λ…], lambdas_weights=weights, N=40,
    # theta=1, trunc_scale=1) after 1, 5, 10, 15 and 20 values
    [
        ([0.2], (1.0,), [1.3, 1.444352, 4.201921282048001, 7.367902652024997, 52.76036584387131]),
        ([0.7], (1.0,), [2.05, 0.8224395, 7.295880543048002, 16.961830069269308, 793.4733727662007]),
        (
            [0.2, 0.5, 0.9],
            (0.5, 0.3, 0.2),
            [1.645, 1.17224505, 5.3145831802624, 11.590081861835513, 274.25159613535556],
        ),
    ],
)
def test_wealth_equals_confseq(
    monkeypatch: pytest.MonkeyPatch, shares: list[float], weights: tuple[float, ...], wealths: list[float]
) -> None:
    monkeypatch.setattr(betting, "_SHARES", np.array(shares))
    path = Portfolio(40, np.array([0.4]), Stakes(weights)).advance(VALUES[None, :])[0]
    assert path[[0, 4, 9, 14, 19]] == pytest.approx(wealths, rel=1e-6)


def test_confidence_sequence_equals_confseq(monkeypatch: pytest.MonkeyPatch) -> None:
    # confseq 0.0.11: betting_cs(VALUES, [λ…], [λ…], alpha=0.05, N=40, breaks=2000, theta=1, trunc_scale=1,
    # running_intersection=True), lower end after 5, 10, 15 and 20 values
    monkeypatch.setattr(betting, "_SHARES", np.array([0.2, 0.5, 0.9]))
    thirds = Stakes((1 / 3, 1 / 3, 1 / 3))
    lower = [0.1685, 0.323, 0.405, 0.46]
    assert lower_confidence_sequence(VALUES, 40, thirds, 0.05, 2000)[[4, 9, 14, 19]] == pytest.approx(lower)
    exact = [lower_confidence_bound(VALUES[:n], 40, thirds, 0.05) for n in (5, 10, 15, 20)]
    assert exact == pytest.approx(lower, abs=1 / 2000)


@pytest.mark.parametrize("stakes", [score_stakes(0.05), score_stakes(0.5), score_stakes(1), difference_stakes()])
def test_stakes_share_a_wealth_of_one(stakes: Stakes) -> None:
    assert sum(stakes.weights) == pytest.approx(1)
    assert min(stakes.weights) > 0
    assert len(stakes.weights) == betting._SHARES.size
    assert ((betting._SHARES > 0) & (betting._SHARES < 1)).all()


@pytest.mark.parametrize(
    "population",
    [(0, 0, 1, 1, 1, 0, 1), (0, 0.5, 0.5, 1, 0.25, 1), (0.9, 1, 0, 0, 0, 0.1), (1, 1, 1), (3, 0, 0, 1, 0.5)],
)
def test_bets_on_a_true_claim_are_fair(population: tuple[float, ...]) -> None:
    """Over all orders the mean wealth stays 1 while the claim can still be met, and never exceeds 1."""
    orders = np.array(list(permutations(population)), dtype=float)
    mean = float(orders[0].mean())
    for null in (mean, mean + 0.05):
        portfolio = Portfolio(orders.shape[1], np.full(len(orders), null), score_stakes(0.4))
        wealth = portfolio.advance(orders).mean(axis=0)
        assert (wealth <= 1 + 1e-6).all()
        if null == mean:
            assert wealth[:3] == pytest.approx(1, abs=1e-6)
        else:
            assert (wealth < 1).all()


@pytest.mark.parametrize("population", [(0, 0, 1, 1, 1, 0, 1), (0, 0.5, 0.5, 1, 0.25, 1), (0, 0, 0, 0, 0, 0, 1)])
@pytest.mark.parametrize("alpha", [0.3, 0.1, 0.05, 0.01])
@pytest.mark.parametrize("has_bar", [False, True])
@pytest.mark.parametrize("stakes", [score_stakes(0.5), difference_stakes()], ids=["scores", "differences"])
def test_a_true_claim_is_rarely_rejected(
    population: tuple[float, ...], alpha: float, has_bar: bool, stakes: Stakes
) -> None:
    """Ville's inequality, counted over all orders: exact, at every stopping time."""
    orders = np.array(list(permutations(population)), dtype=float)
    bar = 1 / alpha if has_bar else inf
    portfolio = Portfolio(orders.shape[1], np.full(len(orders), orders[0].mean()), stakes, bar)
    assert (portfolio.advance(orders).max(axis=1) >= 1 / alpha).mean() <= alpha


@pytest.mark.parametrize("bar", [1.5, 4.0, inf])
@pytest.mark.parametrize("population", [(0, 0, 1, 1, 1, 0, 1), (0, 0.5, 0.5, 1, 0.25, 1), (2, 0, 0, 1, 0.5)])
def test_no_next_bet_of_adapting_stakes_is_expected_to_win(population: tuple[float, ...], bar: float) -> None:
    """A supermartingale: after every beginning the mean over what may follow is at most the wealth there is."""
    orders = np.array(list(permutations(population)), dtype=float)
    n, null = orders.shape[1], float(np.mean(population))
    wealth = Portfolio(n, np.full(len(orders), null), score_stakes(1 - null), bar).advance(orders)
    for seen in range(n - 1):
        before = np.ones(len(orders)) if not seen else wealth[:, seen - 1]
        for beginning in np.unique(orders[:, :seen], axis=0):
            alike = (orders[:, :seen] == beginning).all(axis=1)
            finite = alike & np.isfinite(wealth[:, seen])
            assert wealth[finite, seen].sum() / alike.sum() <= before[alike][0] * (1 + 1e-6)


def test_stakes_are_cut_at_the_bar() -> None:
    whole = np.array([[0.0] + [1.0] * 14])
    cut = Portfolio(100, np.array([0.5]), score_stakes(0.5), 8.0).advance(whole)[0]
    free = Portfolio(100, np.array([0.5]), score_stakes(0.5)).advance(whole)[0]
    assert cut.max() == pytest.approx(8.0)
    assert (cut >= 8).argmax() == (free >= 8).argmax()
    assert free.max() > 10


def test_a_growing_stake_is_the_ratio_of_two_hypergeometric_likelihoods(monkeypatch: pytest.MonkeyPatch) -> None:
    n, null, truth = 40, 16, 24
    monkeypatch.setattr(betting, "_SHARES", np.array([(truth - null) / (n - null)]))
    values = VALUES[VALUES % 1 == 0]
    wealth = Portfolio(n, np.array([null / n]), Stakes((1.0,), grow=True)).advance(values[None, :])[0]
    for seen in range(1, values.size + 1):
        right = int(values[:seen].sum())
        likelihoods = [comb(of, right) * comb(n - of, seen - right) for of in (truth, null)]
        assert wealth[seen - 1] == pytest.approx(likelihoods[0] / likelihoods[1], rel=1e-6)


@given(st.lists(st.sampled_from([0, 0.3, 1]), min_size=1, max_size=40), st.integers(0, 60))
def test_wealth_falls_as_the_claimed_mean_grows(values: list[float], unseen: int) -> None:
    nulls = np.linspace(0.02, 0.98, 30)
    rows = np.tile(np.array(values, dtype=float), (nulls.size, 1))
    wealth = Portfolio(len(values) + unseen, nulls, score_stakes(0.5)).advance(rows)
    with np.errstate(invalid="ignore"):
        assert not (wealth[1:] > wealth[:-1] * (1 + 1e-9)).any()


def test_an_impossible_claim_is_rejected_for_certain() -> None:
    portfolio = Portfolio(10, np.array([0.25]), score_stakes(0.5))
    assert np.isfinite(portfolio.advance(np.array([[1.0, 1.0]]))).all()
    assert np.isposinf(portfolio.advance(np.array([[1.0, 0.0, 1.0]]))).all()


def test_a_claim_met_exactly_is_not_impossible() -> None:
    portfolio = Portfolio(10, np.array([0.3]), score_stakes(0.5))
    assert np.isfinite(portfolio.advance(np.array([[1.0, 1.0, 1.0] + [0.0] * 7]))).all()
    graded = Portfolio(10, np.array([0.3]), score_stakes(0.5))
    assert np.isfinite(graded.advance(np.full((1, 10), 0.3))).all()


def test_wealth_beyond_floating_point_is_zero_or_infinite() -> None:
    portfolio = Portfolio(20_000, np.array([0.5, 0.5]), score_stakes(0.5))
    for _ in range(9_000):
        wealth = portfolio.advance(np.array([[1.0], [0.0]]))[:, 0]
    assert np.isposinf(wealth[0])
    assert 0 <= wealth[1] < 1e-60
    assert portfolio.advance(np.array([[0.0], [1.0]]))[:, 0] == pytest.approx([np.inf, 0.0], abs=1e-60)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.integers(1, 29), st.floats(0.05, 0.95))
def test_wealth_does_not_depend_on_how_values_are_bundled(values: list[float], cut: int, null: float) -> None:
    array = np.array([values])
    at_once = Portfolio(len(values), np.array([null]), score_stakes(1 - null)).advance(array)
    bundled = Portfolio(len(values), np.array([null]), score_stakes(1 - null))
    first = bundled.advance(array[:, :cut])
    rest = bundled.advance(array[:, cut:]) if cut < len(values) else array[:, :0]
    assert np.concatenate([first, rest], axis=1) == pytest.approx(at_once)


def test_runs_side_by_side_are_independent() -> None:
    random = np.random.default_rng(0)
    values = random.random((5, 20))
    nulls = np.linspace(0.2, 0.6, 5)
    together = Portfolio(20, nulls, difference_stakes())
    first = together.advance(values[:, :10])
    some = np.array([3, 1, 1])
    rest = together.keep(some).advance(values[some, 10:])
    for row, run in enumerate(some):
        alone = Portfolio(20, nulls[run : run + 1], difference_stakes()).advance(values[run : run + 1])[0]
        assert np.concatenate([first[run], rest[row]]) == pytest.approx(alone)
    beside = Portfolio(20, nulls[:2], score_stakes(0.5)).beside(Portfolio(20, nulls[2:], difference_stakes()))
    assert beside.advance(values[:, :10])[2:] == pytest.approx(first[2:])


@given(st.lists(st.sampled_from([0, 0.2, 0.5, 1]), min_size=1, max_size=60), st.integers(0, 100))
def test_bounds_never_fall_and_allow_for_the_rest(values: list[float], unseen: int) -> None:
    array, population = np.array(values, dtype=float), len(values) + unseen
    sequence = lower_confidence_sequence(array, population, score_stakes(0.5), 0.05, grid=100)
    assert (np.diff(sequence) >= 0).all()
    assert (sequence >= np.cumsum(array) / population).all()
    assert (sequence <= (np.cumsum(array) + population - np.arange(1, len(values) + 1)) / population + 1e-9).all()
    exact = lower_confidence_bound(array, population, score_stakes(0.5), 0.05)
    assert sequence[-1] - 1e-5 <= exact <= sequence[-1] + 0.01 + 1e-5


def test_bounds_hold_at_all_times_at_once() -> None:
    """How often the sequence ever exceeds the true mean, in 400 random orders of a graded population."""
    random = np.random.default_rng(11)
    scores = np.concatenate([np.zeros(60), random.random(60), np.ones(78)])
    misses = 0
    for _ in range(400):
        random.shuffle(scores)
        sequence = lower_confidence_sequence(scores, 198, score_stakes(0.5), 0.1, grid=50)
        misses += bool((sequence[:-1] > scores.mean()).any())
    assert misses <= 40
