"""The order of asking, and the weights of pooled subtasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import SpecificationError
from assay.stats.sampling import document_weights, permuted, random_order


def test_order_depends_on_the_seed_alone() -> None:
    assert random_order(8, 0) == [7, 4, 3, 2, 6, 0, 5, 1]
    assert random_order(8, 1) != random_order(8, 0)


@given(st.integers(0, 300), st.integers())
def test_order_holds_every_document_once(n: int, seed: int) -> None:
    assert sorted(random_order(n, seed)) == list(range(n))


def test_every_document_comes_first_equally_often() -> None:
    firsts = np.bincount([random_order(5, seed)[0] for seed in range(5000)])
    assert firsts == pytest.approx(1000, abs=120)


def test_permuted_rows_hold_the_same_scores() -> None:
    rows = permuted(np.arange(6.0), 4, seed=1)
    assert rows.shape == (4, 6)
    assert (np.sort(rows, axis=1) == np.arange(6)).all()


def test_weights_that_are_sizes_count_every_document_once() -> None:
    assert document_weights([250, 146, 178], [250, 146, 178]) == pytest.approx([1, 1, 1])


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 10)), min_size=1, max_size=12))
def test_weighted_documents_give_the_aggregate(subtasks: list[tuple[int, float]]) -> None:
    sizes, weights = [size for size, _ in subtasks], [weight for _, weight in subtasks]
    means = np.random.default_rng(0).random(len(sizes))
    pooled = sum(w * size * mean for w, size, mean in zip(document_weights(sizes, weights), sizes, means, strict=True))
    assert pooled / sum(sizes) == pytest.approx(np.average(means, weights=weights))


def test_impossible_weights_are_an_error() -> None:
    for sizes, weights in (([1], [1.0, 2.0]), ([0], [1.0]), ([1], [-1.0]), ([1, 2], [1.0, 0.0])):
        with pytest.raises(SpecificationError):
            document_weights(sizes, weights)
