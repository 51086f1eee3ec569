"""Shared error rates against statsmodels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import SpecificationError
from assay.stats.multiple import bonferroni_alpha, holm


def test_adjusted_p_values_equal_statsmodels() -> None:
    # statsmodels 0.15.0: multipletests(p, method="holm")[1]
    p = [0.01, 0.04, 0.03, 0.005]
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_is_never_worse_than_bonferroni(p_values: list[float]) -> None:
    for raw, stepped in zip(p_values, holm(p_values), strict=True):
        assert raw <= stepped <= min(1, len(p_values) * raw)
    by_size = [adjusted for _, adjusted in sorted(zip(p_values, holm(p_values), strict=True))]
    assert by_size == sorted(by_size)


def test_alpha_is_divided() -> None:
    assert bonferroni_alpha(0.01, 4) == 0.0025
    for alpha, checks in ((0.01, 0), (1.5, 3)):
        with pytest.raises(SpecificationError):
            bonferroni_alpha(alpha, checks)
    with pytest.raises(SpecificationError):
        holm([0.5, 1.5])
