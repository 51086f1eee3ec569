"""The random order of documents, and the weight of each."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from assay.errors import SpecificationError
from assay.stats.validate import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def random_order(n: int, seed: int) -> list[int]:
    """The numbers 0 … n − 1 in an order that depends on the seed alone, not on a library's version or the machine.

    The test's error rate is over this order. With a fixed seed every run would ask the same documents first and repeat
    the same error, so the seed should vary from run to run, and be recorded.
    """
    return sorted(range(n), key=lambda i: hashlib.sha256(f"{seed}:{i}".encode()).digest())


def permuted(scores: NDArray[np.float64], runs: int, seed: int) -> NDArray[np.float64]:
    """Shape (runs, N): the scores in `runs` random orders."""
    return np.random.default_rng(seed).permuted(np.tile(scores, (runs, 1)), axis=1)


def document_weights(sizes: Sequence[int], weights: Sequence[float]) -> list[Fraction]:
    """For each subtask of a group the weight that makes the mean over all documents the group's aggregate.

    The group's documents are pooled and asked in one random order. A document of a subtask with n_g of the N documents
    and share w_g in the aggregate counts N·w_g/n_g, so that the expected weighted score of every next document is the
    aggregate of those left: unbiased at every n. Where weights are sizes all documents count 1. Where they are not, the
    test stays valid and asks more documents the more the weights differ.

    Args:
        sizes: Documents of each subtask.
        weights: Share of each subtask in the aggregate; they need not sum to 1.

    Returns:
        Exact fractions, so that an aggregate equal to the threshold passes.

    Raises:
        SpecificationError: A size or weight is not positive, or there are not as many of one as of the other.
    """
    if len(sizes) != len(weights):
        raise SpecificationError(f"{len(sizes)} subtasks need as many weights, not {len(weights)}")
    if not all(weight > 0 for weight in weights):
        raise SpecificationError("the weights of subtasks must be positive; one that does not count need not be asked")
    exact = [Fraction(weight) for weight in weights]
    total, share = sum(count("subtask size", size, least=1) for size in sizes), sum(exact)
    return [total * weight / share / size for size, weight in zip(sizes, exact, strict=True)]
