from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.helm import MetricSpec, create_metric
from assay.helm.evaluation import evaluate
from assay.helm.stats import MetricName, Moments, PerInstanceStats, Stat, copied_on_read
from assay.helm.tokenization import EncoderService
from tests.helm.states import KeptRecords, generation, result, state

BASIC = "helm.benchmark.metrics.basic_metrics."
NAME = MetricName("score", "test")
numbers = st.lists(st.integers(-(10**9), 10**9) | st.floats(-1e100, 1e100), max_size=6)


@given(numbers)
def test_a_stat_is_the_moments_of_its_values(values: list[int | float]) -> None:
    stat = Stat(NAME)
    for value in values:
        assert stat.add(value) is stat
    assert stat.count == len(values)
    if values:
        assert (stat.min, stat.max) == (min(values), max(values))
        assert stat.mean == stat.sum / stat.count
        assert stat.variance is not None
        assert stat.variance >= 0
        assert stat.stddev == math.sqrt(stat.variance)


@given(numbers, numbers)
def test_merging_counts_both(first: list[int | float], second: list[int | float]) -> None:
    one, other = Moments(), Moments()
    for moments, values in ((one, first), (other, second)):
        for value in values:
            moments.add(value)
    merged = one.to_stat(NAME)
    assert merged.merge(other.to_stat(MetricName("another"))) is merged
    assert merged.name == NAME
    assert merged.count == len(first) + len(second)
    assert merged.sum == 0 + one.total + other.total


def test_integers_stay_integers_and_truth_values_become_them() -> None:
    stat = Stat(NAME).add(2).add(True)
    assert json.dumps(stat.to_builtins()["sum"]) == "3"
    assert stat.mean == 1.5


def test_instances_with_the_same_value_do_not_share_a_stat(tokenizer: EncoderService) -> None:
    run = state([generation(number, result("yes")) for number in range(3)])
    metric = create_metric(MetricSpec(f"{BASIC}BasicGenerationMetric", {"names": ["exact_match"]}))
    sink = KeptRecords()
    evaluate([metric], run, tokenizer, [sink])
    for records in (metric.evaluate(run, tokenizer).per_instance_stats, sink.records):
        totals = {stat.name: stat for stat in records[0].stats}
        for record in records[1:]:
            for stat in record.stats:
                totals[stat.name].merge(stat)
        assert {stat.count for record in records[1:] for stat in record.stats} <= {0, 1}
        assert totals[MetricName("exact_match", "test")].sum == 3


@pytest.mark.parametrize(
    "take",
    [
        list,
        reversed,
        lambda stats: stats[:],
        lambda stats: [stats.pop()],
        lambda stats: operator.add([], stats),
        lambda stats: operator.add(stats, []),
    ],
)
def test_however_a_stat_is_taken_it_is_the_instances_own(take: Callable[[list[Stat]], Iterable[Stat]]) -> None:
    shared = Stat.of(NAME, 1)
    mine, others = (
        copied_on_read(PerInstanceStats(instance_id="a", train_trial_index=0, stats=[shared])) for _ in range(2)
    )
    for stat in take(mine.stats):
        stat.add(5)
        assert stat.sum == 6
    assert others.stats == [Stat.of(NAME, 1)]


def test_none_is_no_value() -> None:
    assert Stat(NAME).add(None) == Stat(NAME)
    assert Stat(NAME).to_builtins() == {
        "name": {"name": "score", "split": "test"},
        "count": 0,
        "sum": 0,
        "sum_squared": 0,
    }


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, -math.inf])
def test_no_number_is_too_large(value: int | float) -> None:
    stat = Stat.of(NAME, value)
    assert stat.mean == (value if isinstance(value, float) else math.copysign(math.inf, value > 0 or -1))
    assert stat.merge(stat).count == 2


def test_the_sign_of_zero_is_kept_where_helm_keeps_it() -> None:
    stat = Stat.of(NAME, -0.0)
    assert (str(stat.sum), str(stat.min), str(stat.mean)) == ("0.0", "-0.0", "0.0")
