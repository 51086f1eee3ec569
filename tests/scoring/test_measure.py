"""Intervals are chosen by the kind of values; groups combine their members."""

from __future__ import annotations

from math import isclose

import pytest
from lm_eval.api.group import Group
from lm_eval.config.group import AggMetricConfig

from assay.scoring.measure import Score, _failure_bounds, _group_scores, interval_of
from assay.stats.intervals import Interval, clustered_mean_interval, failure_bounds, mean_interval, wilson
from assay.stats.strata import stratified_interval


def test_zeros_and_ones_get_wilsons_interval() -> None:
    assert interval_of([1, 0, 1.0, True]) == wilson(3, 4)


def test_graded_scores_get_the_mean_s_interval_within_their_support() -> None:
    assert interval_of([0.2, 0.9, 1.0]) == mean_interval([0.2, 0.9, 1.0], support=(0.0, 1.0))
    bleu = interval_of([12.0, 40.0, 33.0])
    assert bleu is not None
    assert bleu.high > 40


def test_several_verdicts_a_document_are_a_cluster() -> None:
    values = [[True, False], [True], [False, False, True]]
    flat, documents = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0], [0, 0, 1, 2, 2, 2]
    assert interval_of(values) == clustered_mean_interval(flat, documents, support=(0.0, 1.0))


@pytest.mark.parametrize("values", [[], [(1.0, 2)], ["a"], [0.5], [[]]])
def test_what_has_no_mean_has_no_interval(values: list[object]) -> None:
    assert interval_of(values) is None


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_an_odd_value_leaves_the_interval_open_and_ends_nothing(odd: float) -> None:
    assert interval_of([1.0, odd, 0.0]) is None
    assert _failure_bounds([1.0, odd], 1, (0.0, 1.0)) is None


def test_failed_samples_are_bounded_only_where_the_range_is_known() -> None:
    assert _failure_bounds([0.0, 0.0, 0.0], 1, None) is None, "the others just happen to be 0"
    assert _failure_bounds([0.0, 1.0], 1, None) is None, "a count of errors may be 0 and 1 before it is 40"
    assert _failure_bounds([0.0, 0.0, 0.0], 1, (0.0, 1.0)) == failure_bounds(0, 3, 1)
    assert _failure_bounds([False, True], 1, None) == failure_bounds(1, 2, 1), "yes and no have no third"
    assert _failure_bounds([0.2, 0.9], 0, None) == failure_bounds(1.1, 2, 0)
    assert _failure_bounds([0.2, 40.0], 1, (0.0, 1.0)) is None


def test_one_stratum_keeps_its_interval() -> None:
    own = wilson(30, 40)
    combined = stratified_interval([0.75], [own], [40])
    assert isclose(combined.low, own.low)
    assert isclose(combined.high, own.high)


def test_strata_are_narrower_than_their_parts() -> None:
    parts = [wilson(50, 100), wilson(60, 100), wilson(70, 100), wilson(80, 100)]
    combined = stratified_interval([0.5, 0.6, 0.7, 0.8], parts, [100] * 4)
    assert combined.low < 0.65 < combined.high
    assert combined.high - combined.low < 0.55 * (parts[0].high - parts[0].low)


def test_weights_count() -> None:
    sure, unsure = Interval(0.9, 0.9, 0.95, "x"), Interval(0.0, 1.0, 0.95, "x")
    combined = stratified_interval([0.9, 0.5], [sure, unsure], [3, 1])
    assert isclose(combined.low, 0.8 - 0.125)
    assert isclose(combined.high, 0.8 + 0.125)


def test_a_metric_that_some_documents_lack_weighs_as_its_task_does() -> None:
    def score(task: str, key: str, value: float, n: int) -> Score:
        interval = wilson(round(value * n), n)
        bounds = Interval(low=value, high=value, confidence=1.0, method="failure bounds")
        return Score(
            task=task, metric=key, value=value, stderr=None, interval=interval, bounds=bounds, n=n, outcomes={}
        )

    rare, whole = score("a", "some,none", 1.0, 2), score("a", "all,none", 0.5, 30)
    other = score("b", "some,none", 0.5, 10)
    group = Group("g", aggregate_metric_list=[AggMetricConfig(metric="some")])
    entry = {"some,none": (1.0 * 30 + 0.5 * 10) / 40}
    found = _group_scores(group, entry, [{"some,none": rare, "all,none": whole}, {"some,none": other}])["some,none"]
    assert rare.interval is not None
    assert other.interval is not None
    assert found.interval == stratified_interval([1.0, 0.5], [rare.interval, other.interval], [30, 10])
    assert found.bounds is not None
    assert isclose(found.bounds.low, entry["some,none"])
