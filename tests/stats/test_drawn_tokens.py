"""Tests on drawn tokens keep their error rates, simulated on lists that lack most tokens, and see what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from assay.stats.drawn_tokens import DrawnTemperature, Evidence, NucleusTest, SeedTest

Floats = NDArray[np.float64]
VOCABULARY, LISTED = 200, 20
PATHS, TOKENS, ALPHA = 600, 60, 0.05
ALLOWED = 48
"""Of 600 paths: more would have a chance of 0.1 % at a rate of 5 %."""


def position(rng: np.random.Generator) -> tuple[Floats, list[float]]:
    """A distribution of all tokens by falling log-probability, and what a server lists of it, rounded."""
    values = np.sort(rng.normal(scale=1.5, size=VOCABULARY))[::-1]
    values -= np.log(np.exp(values).sum())
    return values, [round(float(value), 4) for value in values[:LISTED]]


def drawn(rng: np.random.Generator, logprobs: Floats, temperature: float = 1.0, top_p: float = 1.0) -> int:
    p = np.exp(logprobs / temperature)
    p /= p.sum()
    if top_p < 1:
        p[int(np.searchsorted(np.cumsum(p), top_p)) + 1 :] = 0
    return int(rng.choice(VOCABULARY, p=p / p.sum()))


def temperatures(rng: np.random.Generator, true: float, tokens: int = TOKENS) -> DrawnTemperature:
    test = DrawnTemperature(ALPHA)
    for _ in range(tokens):
        logprobs, listed = position(rng)
        if (token := drawn(rng, logprobs, true)) < LISTED:
            test.add(listed, token)
    return test


def nuclei(rng: np.random.Generator, top_p: float, tokens: int = TOKENS) -> NucleusTest:
    test = NucleusTest(0.3, ALPHA, ALPHA)
    for _ in range(tokens):
        logprobs, listed = position(rng)
        token = drawn(rng, logprobs, top_p=top_p)
        test.add(listed, token if token < LISTED else None)
    return test


def seeds(rng: np.random.Generator, *, honoured: float, others_equal: bool = False) -> SeedTest:
    test = SeedTest(ALPHA)
    for _ in range(TOKENS):
        logprobs, listed = position(rng)
        first, independent, other = (drawn(rng, logprobs) for _ in range(3))
        again = first if rng.random() < honoured else independent
        test.add_equal(listed, first == again)
        test.add_unequal(listed, others_equal or first == other)
    return test


def share(says: Callable[[np.random.Generator], bool]) -> int:
    rng = np.random.default_rng(1)
    return sum(says(rng) for _ in range(PATHS))


@pytest.mark.slow
@pytest.mark.parametrize("true", [0.3, 0.5, 1.0, 1.5])
def test_the_true_temperature_is_hardly_ever_excluded_though_most_tokens_are_not_listed(true: float) -> None:
    assert share(lambda rng: temperatures(rng, true).excludes(true)) <= ALLOWED


@pytest.mark.slow
def test_seeds_and_nuclei_are_hardly_ever_called_ignored_or_applied_in_error() -> None:
    assert share(lambda rng: seeds(rng, honoured=0.96).is_ignored) <= ALLOWED
    assert share(lambda rng: seeds(rng, honoured=0.96).is_constant) <= ALLOWED
    assert share(lambda rng: seeds(rng, honoured=0.0).is_honoured) <= ALLOWED
    assert share(lambda rng: nuclei(rng, 0.3).is_ignored) <= ALLOWED
    assert share(lambda rng: nuclei(rng, 1.0).is_applied) <= ALLOWED


def test_what_is_wrong_is_seen() -> None:
    rng = np.random.default_rng(2)
    assert temperatures(rng, 1.0, tokens=300).excludes(0.5)
    assert temperatures(rng, 0.05).excludes(0.5)
    assert nuclei(rng, 1.0).is_ignored
    assert seeds(rng, honoured=0.0).is_ignored
    assert seeds(rng, honoured=1.0, others_equal=True).is_constant


def test_what_is_right_is_said_to_be_that() -> None:
    rng = np.random.default_rng(3)
    low, high = temperatures(rng, 0.5, tokens=200).interval
    assert 0.35 < low < 0.5 < high < 0.75
    assert nuclei(rng, 0.3).is_applied
    honoured = seeds(rng, honoured=1.0)
    assert honoured.is_honoured
    assert not honoured.is_constant


def test_impossible_evidence_refutes_nothing_and_stays_what_it_was() -> None:
    evidence = Evidence(0.05)
    evidence.multiply(0.0)
    evidence.multiply(1e9)
    assert not evidence.is_enough
    evidence = Evidence(0.05)
    evidence.multiply(21.0)
    evidence.multiply(0.0)
    assert evidence.is_enough


def test_a_list_that_is_too_short_says_nothing() -> None:
    temperature, nucleus = DrawnTemperature(0.05), NucleusTest(0.5, 0.05, 0.05)
    temperature.add([0.0], 0)
    nucleus.add([-1.0], 0)  # it ends within the nucleus
    assert temperature.tokens == nucleus.tokens == 0
