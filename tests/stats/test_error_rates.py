"""Simulated error rates, at every stopping time. ``make simulate`` runs the same with 10⁴ orders a setting.

A decision is wrong if it comes before the last document and differs from what all documents say. The hardest scores
are the two on either side of the threshold: a wrong decision is never likelier than there.
"""

from __future__ import annotations

from math import ceil, comb
from typing import TYPE_CHECKING

import numpy as np
import pytest

from assay.stats.many import decide_many
from assay.stats.plans import Decision, SequentialPlan, margin_plan, threshold_plan
from assay.stats.sampling import document_weights, permuted, random_order
from assay.stats.sequential import SequentialTest

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALPHAS = (0.05, 0.01, 0.001)
RUNS = {198: 400, 541: 150, 1319: 60, 12032: 6}
THRESHOLDS = (0.3, 0.435, 0.7, 0.95)


def right_or_wrong(n: int, right: int) -> NDArray[np.float64]:
    return np.repeat([1.0, 0.0], [right, n - right])


def differences(n: int, lost: float, gained: float) -> NDArray[np.float64]:
    flips = [round(lost * n), round(gained * n)]
    return np.repeat([-1.0, 1.0, 0.0], [*flips, n - sum(flips)])


def most_errors(runs: int, alpha: float) -> int:
    """The number of errors that a test of error rate alpha exceeds once in 10,000 simulations."""
    tail, k = 1.0, 0
    while tail > 1e-4:
        tail -= comb(runs, k) * alpha**k * (1 - alpha) ** (runs - k)
        k += 1
    return k


def check_error_rates(plan: SequentialPlan, scores: NDArray[np.float64], runs: int) -> NDArray[np.int64]:
    """Follow the plan in random orders; return the number of wrong decisions at each of ALPHAS."""
    passed, documents = decide_many(plan, permuted(scores, runs, seed=runs), ALPHAS)
    truth = plan.decide_exactly(scores, [1.0] * scores.size) is Decision.PASS
    wrong: NDArray[np.int64] = (passed != truth).sum(axis=0)
    for errors, alpha in zip(wrong, ALPHAS, strict=True):
        assert errors <= most_errors(runs, alpha), f"{errors} of {runs} decisions were wrong at alpha {alpha}"
    assert (np.diff(documents, axis=1) >= 0).all()
    return wrong


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize("n", RUNS)
def test_threshold_checks_keep_their_error_rate(n: int, threshold: float) -> None:
    plan = threshold_plan(n, threshold, resolution=1)
    needed = ceil(threshold * n)
    near, far = ceil(0.02 * n), ceil(0.15 * n)
    for right in (needed, needed - 1, needed + near, needed - near, needed + far, needed - far):
        if 0 <= right <= n:
            check_error_rates(plan, right_or_wrong(n, right), RUNS[n])


@pytest.mark.parametrize("flips", [0.0, 0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("n", RUNS)
def test_baseline_checks_keep_their_error_rate(n: int, flips: float) -> None:
    margin = 0.03
    plan = margin_plan(n, margin, resolution=1)
    allowed = int(margin * n) / n
    for loss in (allowed, allowed + 1 / n, 0.0, 0.13):
        share = max(flips, loss)
        check_error_rates(plan, differences(n, (share + loss) / 2, (share - loss) / 2), RUNS[n])


@pytest.mark.parametrize(
    "scores",
    [
        np.linspace(0, 1, 200),
        np.repeat([0.0, 0.5, 1.0], [20, 160, 20]),
        np.repeat([0.49, 0.51], [100, 100]),
        np.repeat([1.0, 0.475], [10, 190]),
        np.repeat([0.0, 0.525], [10, 190]),
        np.full(200, 0.5),
    ],
    ids=["even", "mostly half", "narrow", "rare highs", "rare lows", "constant"],
)
def test_graded_scores_keep_the_error_rate(scores: NDArray[np.float64]) -> None:
    mean = float(scores.mean())
    for threshold in (mean, mean + 1e-6, mean - 1e-6, mean + 0.02, mean - 0.02):
        check_error_rates(threshold_plan(200, threshold), scores, 500)


@pytest.mark.parametrize("arrangement", ["easy first", "hard first", "alternating", "blocks"])
def test_no_arrangement_of_difficulty_matters(arrangement: str) -> None:
    """The benchmark's own order is undone by the random order that documents are asked in."""
    n, needed = 198, 87
    scores = right_or_wrong(n, needed - 1)
    if arrangement == "hard first":
        scores = scores[::-1]
    elif arrangement == "alternating":
        scores = scores.reshape(2, -1).T.ravel()
    elif arrangement == "blocks":
        scores = np.concatenate(np.split(scores, 11)[::2] + np.split(scores, 11)[1::2])
    plan, runs = threshold_plan(n, needed / n, 0.05, resolution=1), 600
    orders = np.array([scores[random_order(n, seed)] for seed in range(runs)])
    passed, _ = decide_many(plan, orders)
    assert passed.sum() <= most_errors(runs, 0.05)


@pytest.mark.parametrize("failing", [0.0, 1.0], ids=["wrong answers fail", "right answers fail"])
def test_failures_that_favour_one_side_keep_the_error_rate(failing: float) -> None:
    """A tenth of the documents fail, all of them right ones or all wrong ones."""
    n, wrong, runs = 198, 0, 100
    for right, mistake in ((86, Decision.PASS), (87, Decision.FAIL)):
        scores = right_or_wrong(n, right)
        for order in permuted(scores, runs, seed=1):
            test = SequentialTest(threshold_plan(n, 87 / n, 0.05, resolution=1))
            lost = 20
            for score in order:
                fails = score == failing and lost > 0
                lost -= fails
                if test.add(None if fails else float(score)) is not Decision.OPEN:
                    break
            wrong += test.decision is mistake
        assert wrong <= most_errors(runs, 0.05)


def test_weighted_groups_keep_the_error_rate() -> None:
    """Three subtasks that count alike though one is large: the pooled score would pass, their mean just fails."""
    sizes, right = [120, 40, 20], [90, 16, 5]
    weights = np.repeat([float(weight) for weight in document_weights(sizes, [1, 1, 1])], sizes)
    scores = np.concatenate([right_or_wrong(n, k) for n, k in zip(sizes, right, strict=True)])
    mean = float(np.mean([0.75, 0.4, 0.25]))
    runs = 120
    for threshold, mistake in ((mean + 1e-6, Decision.PASS), (mean - 1e-6, Decision.FAIL)):
        wrong = 0
        for seed in range(runs):
            test = SequentialTest(threshold_plan(scores.size, threshold, 0.05))
            for document in random_order(scores.size, seed):
                if test.add(float(scores[document]), float(weights[document])) is not Decision.OPEN:
                    break
            wrong += test.decision is mistake
        assert wrong <= most_errors(runs, 0.05)


def test_an_error_rate_is_nearly_used_up() -> None:
    """At the threshold the test errs nearly as often as it may: it is not needlessly careful."""
    plan = threshold_plan(1319, 0.435, resolution=1)
    runs = 600
    wrong = check_error_rates(plan, right_or_wrong(1319, 573), runs)
    assert wrong[0] >= 0.4 * 0.05 * runs


@pytest.mark.parametrize(
    ("score", "most"), [(0.0, 18), (0.05, 24), (0.217, 69), (0.635, 93), (0.535, 300)], ids=lambda value: f"{value}"
)
def test_documents_needed_against_a_threshold(score: float, most: float) -> None:
    """N = 1319, threshold 0.435, α = 0.001: mean documents; bounds above 60 allow for the error of 1000 orders."""
    plan = threshold_plan(1319, 0.435, 0.001, resolution=1)
    passed, documents = decide_many(plan, permuted(right_or_wrong(1319, round(score * 1319)), 1000, seed=2))
    assert passed.all() == (score > 0.435)
    assert documents.mean() <= most


@pytest.mark.parametrize(
    ("score", "best"),
    [(0.0, 11), (0.2, 38.2), (0.3, 120.8), (0.38, 447.2), (0.42, 1153.9), (0.45, 1126.3), (0.5, 372.8), (0.6, 82.5)],
    ids=lambda value: f"{value}",
)
def test_no_rival_is_far_ahead(score: float, best: float) -> None:
    """N = 1319, threshold 0.435, α = 0.01: the best of ten tests, each in its best case, needs `best` documents."""
    orders = permuted(right_or_wrong(1319, round(score * 1319)), 250 if score else 1, seed=4)
    _, documents = decide_many(threshold_plan(1319, 0.435, 0.01, resolution=1), orders)
    noise = 3 * float(documents.std()) / len(orders) ** 0.5
    assert documents.mean() <= 1.08 * best + noise


@pytest.mark.parametrize(
    ("lost", "gained", "most"), [(0.01, 0.01, 294), (0.165, 0.035, 158)], ids=["healthy", "13 points lost"]
)
def test_documents_needed_against_a_baseline(lost: float, gained: float, most: float) -> None:
    """N = 1319, margin 0.03, α = 0.01: mean documents; the last bound allows for the error of 800 orders."""
    plan = margin_plan(1319, 0.03, 0.01, resolution=1)
    passed, documents = decide_many(plan, permuted(differences(1319, lost, gained), 800, seed=1))
    assert passed.mean() >= 0.99 if lost == gained else passed.mean() <= 0.01
    assert documents.mean() <= most
