"""What several answers to a question say of fewer."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest

from assay.errors import SpecificationError
from assay.stats.repeats import pass_at_k


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_choices_that_hold_a_right_answer(n: int) -> None:
    for correct in range(n + 1):
        answers = [place < correct for place in range(n)]
        for k in range(1, n + 1):
            choices = [any(chosen) for chosen in combinations(answers, k)]
            assert pass_at_k(n, correct, k) == Fraction(sum(choices), len(choices))


def test_pass_at_1_is_the_share_of_right_answers() -> None:
    assert pass_at_k(64, 17, 1) == Fraction(17, 64)


@pytest.mark.parametrize(("n", "correct", "k"), [(4, 2, 5), (4, 5, 2), (4, -1, 2), (4, 2, 0)])
def test_what_cannot_be_told_is_refused(n: int, correct: int, k: int) -> None:
    with pytest.raises(SpecificationError, match=f"pass@{k} cannot be told from 4 answers"):
        pass_at_k(n, correct, k)
