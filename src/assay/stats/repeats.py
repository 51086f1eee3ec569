"""What several answers to one question say of more or fewer answers to it."""

from __future__ import annotations

from fractions import Fraction
from math import comb

from assay.errors import SpecificationError


def pass_at_k(n: int, correct: int, k: int) -> Fraction:
    """The chance that at least one of k answers to a question is right, from n answers to it.

    Chen et al. (2021, arXiv 2107.03374), equation 1: 1 - C(n - c, k)/C(n, k), the share of all choices of k of the n
    answers that hold a right one. Without bias, where 1 - (1 - c/n)^k is too low.

    Args:
        n: Answers there are.
        correct: How many of them are right.
        k: Answers that there might have been, at most n.

    Raises:
        SpecificationError: There are fewer answers than k, or than right ones.
    """
    if not 1 <= k <= n or not 0 <= correct <= n:
        raise SpecificationError(f"pass@{k} cannot be told from {n} answers of which {correct} are right")
    return 1 - Fraction(comb(n - correct, k), comb(n, k))
