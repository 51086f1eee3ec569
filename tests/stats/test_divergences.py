"""The sequential tests on divergences keep their error rates, and decide as fast as they should."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.divergences import CUT, DivergenceTest, fewest_for_same

AT_MOST, SIZE, RATE = 1.2e-3, 6e-3, 1e-2
Draw = Callable[[random.Random], float]


def exponential(mean: float) -> Draw:
    return lambda random: random.expovariate(1 / mean)


def heavy(mean: float) -> Draw:
    return lambda random: mean * exp(random.gauss(0, 1.5) - 1.125)


def rare(mean: float) -> Draw:
    return lambda random: mean * 20 if random.random() < 0.05 else 0.0


def decide(draw: Draw, source: random.Random, requests: int = 200) -> tuple[str, int]:
    test = DivergenceTest(AT_MOST, SIZE, RATE, RATE)
    for asked in range(1, requests + 1):
        test.add(draw(source))
        if test.is_different or test.is_same:
            return ("different" if test.is_different else "same"), asked
    return "inconclusive", requests


@pytest.mark.parametrize("draw", [exponential(AT_MOST), heavy(AT_MOST), rare(AT_MOST), exponential(AT_MOST / 3)])
def test_a_healthy_server_is_hardly_ever_called_different(draw: Draw) -> None:
    source = random.Random(1)
    found = [decide(draw, source)[0] for _ in range(1000)]
    assert found.count("different") <= 20  # 10 are allowed on average; more than 20 once in a thousand such tests


@pytest.mark.parametrize("draw", [exponential(SIZE * 1.3), lambda _: SIZE])
def test_a_change_that_matters_is_hardly_ever_called_the_same(draw: Draw) -> None:
    source = random.Random(2)
    found = [decide(draw, source)[0] for _ in range(1000)]
    assert found.count("same") <= 20


@pytest.mark.parametrize(("draw", "most"), [(exponential(1.0), 3), (heavy(0.1), 5), (heavy(9 * AT_MOST), 12)])
def test_a_broken_server_is_found_at_once(draw: Draw, most: int) -> None:
    source = random.Random(3)
    found = sorted(decide(draw, source) for _ in range(200))
    assert {verdict for verdict, _ in found} == {"different"}
    assert sorted(asked for _, asked in found)[100] <= most


def test_a_quiet_server_is_the_same_after_as_few_as_said() -> None:
    verdict, asked = decide(lambda _: 0.0, random.Random(4))
    assert verdict == "same"
    assert asked <= fewest_for_same(RATE) + 5


@given(st.lists(st.floats(0, 100), max_size=60))
def test_different_stays_and_same_holds_until_a_value_is_beyond_the_cut(values: list[float]) -> None:
    test = DivergenceTest(AT_MOST, SIZE, RATE, RATE)
    was_different = was_same = False
    for value in values:
        test.add(value)
        assert test.is_different >= was_different
        assert test.is_same >= was_same or value > CUT * SIZE
        was_different, was_same = test.is_different, test.is_same


@pytest.mark.parametrize(("at_most", "size"), [(0, 1), (1, 1), (2, 1), (-1, 1)])
def test_sizes_that_make_no_sense_are_refused(at_most: float, size: float) -> None:
    with pytest.raises(ValueError, match="need 0 < at_most < size"):
        DivergenceTest(at_most, size, RATE, RATE)


def test_one_prompt_that_is_far_off_keeps_same_from_being_said() -> None:
    test = DivergenceTest(AT_MOST, SIZE, 1e-6, RATE)
    test.add(CUT * SIZE * 1.01)
    for _ in range(200):
        test.add(0.0)
    assert not test.is_same


def test_the_cut_is_what_the_messages_say() -> None:
    assert CUT == 6
