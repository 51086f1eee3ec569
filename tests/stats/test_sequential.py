"""Properties that every sequential decision must have; the error rates are in test_error_rates.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import fsum, nan

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay.errors import NothingMeasuredError, SpecificationError
from assay.stats.many import decide_many
from assay.stats.plans import Decision, SequentialPlan, margin_plan, threshold_plan
from assay.stats.sampling import document_weights
from assay.stats.sequential import SequentialTest, confidence_sequence

rights = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=80)
graded = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0]), min_size=1, max_size=40)
thresholds = st.sampled_from([0.0, 0.1, 0.3, 0.435, 0.5, 0.7, 0.95, 1.0])


def follow(plan: SequentialPlan, scores: Sequence[float | None]) -> SequentialTest:
    test = SequentialTest(plan)
    for score in scores:
        test.add(score)
    return test


def first_decision(plan: SequentialPlan, scores: Sequence[float | None]) -> tuple[Decision, int | None]:
    test = SequentialTest(plan)
    for score in scores:
        if test.add(score) is not Decision.OPEN:
            break
    return test.decision, test.decided_after


@given(rights, thresholds, st.randoms(use_true_random=False))
def test_all_documents_decide_exactly_in_any_order(scores: list[float], threshold: float, random: object) -> None:
    plan = threshold_plan(len(scores), threshold, resolution=1)
    exact = Decision.PASS if sum(scores) / len(scores) >= threshold else Decision.FAIL
    shuffled = scores.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert follow(plan, scores).decision is follow(plan, shuffled).decision is exact


@given(graded, st.data(), st.randoms(use_true_random=False))
def test_graded_scores_at_the_threshold_decide_alike_in_any_order(
    scores: list[float], data: st.DataObject, random: object
) -> None:
    """The threshold is a mean that the scores can have, so that rounding in another order would show."""
    threshold = float(sum(map(Fraction, scores)) / len(scores)) if data.draw(st.booleans()) else 0.3
    plan = threshold_plan(len(scores), threshold)
    shuffled = scores.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert follow(plan, scores).decision is follow(plan, shuffled).decision


@given(rights, thresholds)
def test_one_more_right_document_never_turns_pass_into_fail(scores: list[float], threshold: float) -> None:
    if follow(threshold_plan(len(scores), threshold), scores).decision is Decision.PASS:
        assert follow(threshold_plan(len(scores) + 1, threshold), [*scores, 1.0]).decision is Decision.PASS


@given(graded, thresholds | st.none(), st.data())
def test_failures_never_turn_a_decision_round(
    scores: list[float], threshold: float | None, data: st.DataObject
) -> None:
    """Without a threshold: the scores' own mean, where rounding would show."""
    plan = threshold_plan(len(scores), fsum(scores) / len(scores) if threshold is None else threshold)
    lost = data.draw(st.sets(st.integers(0, len(scores) - 1)))
    known: list[float | None] = [None if i in lost else score for i, score in enumerate(scores)]
    complete, incomplete = follow(plan, scores), follow(plan, known)
    assert incomplete.decision in (complete.decision, Decision.UNDECIDABLE)
    assert incomplete.interval().low <= complete.interval().low
    assert incomplete.interval().high >= complete.interval().high
    for with_all, with_some in zip(complete.p_values, incomplete.p_values, strict=True):
        assert with_some >= with_all * (1 - 1e-9)


@given(graded, st.integers(1, 30), st.data())
def test_failures_only_widen_the_confidence_sequence(scores: list[float], unseen: int, data: st.DataObject) -> None:
    plan = threshold_plan(len(scores) + unseen, 0.435, 0.05)
    lost = data.draw(st.integers(0, len(scores) - 1))
    low, high = confidence_sequence(plan, scores)
    wider_low, wider_high = confidence_sequence(plan, [*scores[:lost], nan, *scores[lost + 1 :]])
    assert (wider_low <= low + 1e-9).all()
    assert (wider_high >= high - 1e-9).all()


@given(graded, st.integers(0, 60), st.sampled_from([0.2, 0.05, 0.001]))
def test_confidence_sequence_narrows_and_agrees_with_the_decision(
    scores: list[float], unseen: int, alpha: float
) -> None:
    plan = threshold_plan(len(scores) + unseen, 0.435, alpha)
    low, high = confidence_sequence(plan, scores)
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) <= 0).all()
    test = follow(plan, scores)
    interval = test.interval()
    assert 0 <= interval.low <= test.estimate + 1e-12
    assert test.estimate - 1e-12 <= interval.high <= 1
    if unseen and test.decision is Decision.PASS:
        assert interval.low >= min(0.435, test.estimate) - 1e-5
    if unseen and test.decision is Decision.FAIL:
        assert interval.high <= max(0.435, test.estimate) + 1e-5
    if unseen and test.decision is Decision.OPEN:
        assert interval.low - 1e-5 <= 0.435 <= interval.high + 1e-5


@given(rights, thresholds, st.sampled_from([0.05, 0.001]), st.booleans())
def test_many_side_by_side_decide_like_one_alone(
    scores: list[float], threshold: float, alpha: float, known: bool
) -> None:
    plan = threshold_plan(len(scores), threshold, alpha, resolution=1 if known else None)
    passed, documents = decide_many(plan, np.array([scores, scores[::-1]]))
    for row, order in enumerate((scores, scores[::-1])):
        expected = Decision.PASS if passed[row, 0] else Decision.FAIL
        assert first_decision(plan, order) == (expected, documents[row, 0])


@given(graded, thresholds)
def test_lower_is_better_is_the_mirror_image(scores: list[float], threshold: float) -> None:
    mirrored = threshold_plan(len(scores), -threshold, support=(-1, 0), higher_is_better=False)
    assert first_decision(threshold_plan(len(scores), threshold), scores) == first_decision(
        mirrored, [-score for score in scores]
    )


@given(rights, thresholds)
def test_percentages_decide_like_shares(scores: list[float], threshold: float) -> None:
    percent = threshold_plan(len(scores), 100 * threshold, support=(0, 100), resolution=100)
    shares = threshold_plan(len(scores), threshold, resolution=1)
    assume(100 * threshold / 100 == threshold)
    assert first_decision(shares, scores)[0] is first_decision(percent, [100 * score for score in scores])[0]


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=60), st.sampled_from([0.0, 0.03, 0.1, 1.0]))
def test_margins_decide_exactly_in_both_directions(differences: list[float], margin: float) -> None:
    n, total = len(differences), sum(differences)
    higher = follow(margin_plan(n, margin, resolution=1), differences)
    assert higher.decision is (Decision.PASS if total / n >= -margin else Decision.FAIL)
    lower = follow(margin_plan(n, margin, resolution=1, higher_is_better=False), differences)
    assert lower.decision is (Decision.PASS if total / n <= margin else Decision.FAIL)


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(1, 30))
def test_knowing_that_scores_are_whole_never_costs_documents(right: int, wrong: int) -> None:
    order = np.random.default_rng(right).permuted(np.repeat([1.0, 0.0], [right, wrong]))
    for threshold in (0.3, 0.7):
        known = first_decision(threshold_plan(right + wrong, threshold, resolution=1), order.tolist())
        unknown = first_decision(threshold_plan(right + wrong, threshold), order.tolist())
        assert known[0] is unknown[0] or 1 in (known[1], unknown[1])
        assert known[1] is not None
        assert unknown[1] is not None
        assert known[1] <= unknown[1]


def test_extreme_thresholds() -> None:
    assert first_decision(threshold_plan(100, 1.0, resolution=1), [1.0] * 5 + [0.0] + [1.0] * 94) == (Decision.FAIL, 6)
    assert first_decision(threshold_plan(100, 1.0, resolution=1), [1.0] * 100) == (Decision.PASS, 100)
    assert first_decision(threshold_plan(100, 0.0, resolution=1), [0.0] * 100) == (Decision.PASS, 1)
    assert first_decision(threshold_plan(1, 0.5), [1.0]) == (Decision.PASS, 1)
    assert first_decision(threshold_plan(1, 0.5), [0.0]) == (Decision.FAIL, 1)


def test_no_decision_from_nothing() -> None:
    for threshold in (0.0, 0.5):
        test = follow(threshold_plan(3, threshold), [None, None])
        assert test.decision is Decision.OPEN
        assert test.add(None) is Decision.UNDECIDABLE
    assert follow(threshold_plan(3, 0.5), []).interval().low == 0.0
    for read in (lambda: follow(threshold_plan(3, 0.5), [None]).estimate, follow(threshold_plan(3, 0.5), []).forecast):
        with pytest.raises(NothingMeasuredError):
            read()


def test_too_many_failures_leave_it_undecidable() -> None:
    plan = threshold_plan(10, 0.5, resolution=1)
    assert follow(plan, [1.0] * 4 + [0.0] * 4 + [None] * 2).decision is Decision.UNDECIDABLE
    assert follow(plan, [1.0] * 5 + [0.0] * 3 + [None] * 2).decision is Decision.PASS
    assert follow(plan, [1.0] * 2 + [0.0] * 6 + [None] * 2).decision is Decision.FAIL


def test_a_decision_stays_while_requests_in_flight_arrive() -> None:
    test = SequentialTest(threshold_plan(1000, 0.4, 0.01))
    for _ in range(12):
        test.add(1.0)
    assert (test.decision, test.decided_after) == (Decision.PASS, 7)
    for _ in range(12):
        assert test.add(0.0) is Decision.PASS
    assert test.decided_after == 7
    assert test.seen == 24


def test_the_last_document_has_the_last_word() -> None:
    """Easy documents first, which a random order would hardly do: the early pass is corrected."""
    test = SequentialTest(threshold_plan(60, 0.5, 0.05))
    for score in [1.0] * 20 + [0.0] * 39:
        test.add(score)
    assert test.decision is Decision.PASS
    assert test.add(0.0) is Decision.FAIL
    assert test.decided_after == 60


def test_forecast_grows_as_the_score_nears_the_threshold() -> None:
    plan = threshold_plan(5000, 0.5, 1e-4, resolution=1)
    far, near = follow(plan, [1.0] * 11 + [0.0]), follow(plan, [1.0, 0.0] * 5 + [1.0] * 2)
    assert far.decision is near.decision is Decision.OPEN
    forecasts = far.forecast(), near.forecast()
    assert forecasts[0] is not None
    assert forecasts[1] is not None
    assert 0 < forecasts[0] < 30 < forecasts[1] <= 4988
    assert follow(plan, [1.0] * 30).forecast() == 0


def test_a_handful_of_documents_forecasts_nothing() -> None:
    plan = threshold_plan(1319, 0.435, 0.001, resolution=1)
    assert follow(plan, [1.0]).forecast() is None
    assert follow(plan, [1.0] * 7 + [None] * 5).forecast() is None
    later = follow(plan, [1.0] * 8)
    assert later.decision is Decision.OPEN
    forecast = later.forecast()
    assert forecast is not None
    assert forecast > 1


def test_weights_make_the_groups_aggregate() -> None:
    """Two subtasks of 30 and 10 documents that count half each; only the weighted mean fails."""
    large, small = document_weights([30, 10], [1, 1])
    test = SequentialTest(threshold_plan(40, 0.6))
    parts: list[tuple[float, Fraction, int]] = [
        (1.0, large, 27),
        (0.0, large, 3),
        (1.0, small, 2),
        (0.0, small, 8),
    ]
    for right, weight, documents in parts:
        for _ in range(documents):
            test.add(right, weight)
    assert test.estimate == pytest.approx((0.9 + 0.2) / 2)
    assert test.decision is Decision.FAIL
    assert test.interval().low == pytest.approx(0.55)
    for wrong in (0.0, -1.0, nan):
        with pytest.raises(SpecificationError, match="weight"):
            SequentialTest(threshold_plan(40, 0.6)).add(1.0, wrong)
    with pytest.raises(SpecificationError, match="resolution"):
        SequentialTest(threshold_plan(40, 0.6, resolution=1)).add(1.0, 2.0)


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=2, max_size=5),
    st.booleans(),
)
def test_a_threshold_that_a_weighted_group_meets_exactly_is_met(parts: list[tuple[int, int]], lower: bool) -> None:
    """The threshold is the float nearest to the group's mean, which the arithmetic must neither miss nor exceed."""
    sizes = [size for size, _ in parts]
    rights = [min(size, right) for size, right in parts]
    mean = sum(Fraction(right, size) for size, right in zip(sizes, rights, strict=True)) / len(parts)
    threshold, missed = float(mean), float(mean + Fraction(1, 1000) * (-1 if lower else 1))
    for demanded, decision in ((threshold, Decision.PASS), (missed, Decision.FAIL)):
        if not 0 <= demanded <= 1:
            continue
        test = SequentialTest(threshold_plan(sum(sizes), demanded, 1e-9, higher_is_better=not lower))
        for size, right, weight in zip(sizes, rights, document_weights(sizes, [1] * len(sizes)), strict=True):
            for place in range(size):
                test.add(float(place < right), weight)
        assert test.decision is decision


def test_impossible_input_is_an_error() -> None:
    computations: list[Callable[[], object]] = [
        lambda: threshold_plan(0, 0.5),
        lambda: threshold_plan(10, 1.5),
        lambda: threshold_plan(10, nan),
        lambda: threshold_plan(10, 0.5, 1.0),
        lambda: threshold_plan(10, 0.5, support=(1, 1)),
        lambda: threshold_plan(10, 0.5, resolution=0),
        lambda: margin_plan(10, -0.03),
        lambda: margin_plan(10, 1.5),
        lambda: follow(threshold_plan(10, 0.5), [1.5]),
        lambda: follow(threshold_plan(10, 0.5), [-0.1]),
        lambda: follow(threshold_plan(10, 0.5), [float("inf")]),
        lambda: follow(threshold_plan(10, 0.5), [nan]),
        lambda: follow(threshold_plan(10, 0.5, resolution=1), [0.5]),
        lambda: follow(threshold_plan(2, 0.5), [1.0, 1.0, 1.0]),
        lambda: decide_many(threshold_plan(3, 0.5), np.ones((2, 4))),
        lambda: decide_many(threshold_plan(3, 0.5), np.array([[1.0, nan, 0.0]])),
        lambda: confidence_sequence(threshold_plan(3, 0.5), [2.0]),
        lambda: confidence_sequence(threshold_plan(3, 0.5), [1.0] * 4),
    ]
    for compute in computations:
        with pytest.raises(SpecificationError):
            compute()


def test_the_interval_agrees_with_the_decision_where_one_document_weighs_as_much_as_many() -> None:
    """The only document of a task is wrong, and its weight pulls the mean so far below the threshold."""
    alone, other = document_weights([1, 120], [1.0, 1.0])
    test = SequentialTest(threshold_plan(121, 0.2, 0.05))
    test.add(1.0, other)
    test.add(0.0, alone)
    while test.add(1.0, other) is Decision.OPEN:
        pass
    assert test.decision is Decision.PASS
    assert test.estimate < 0.2 == test.interval().low
