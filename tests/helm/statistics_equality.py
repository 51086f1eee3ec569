"""Statistics beside those that the real HELM recorded, on another machine."""

from __future__ import annotations

import json
from typing import Any

import pytest

LAST_DIGITS = 1e-13
"""Relative; NumPy's exponential has another last digit on another processor."""
SPREAD = 1e-6
"""Absolute, of standard deviations: the root of what a last digit leaves of numbers that are all but equal."""
SOLVER = 1e-6
"""Relative; the logistic regression behind Platt scaling is found by iteration, and its last digits depend on BLAS."""


def assert_same_statistics(ours: Any, theirs: Any) -> None:
    """Assert that statistics are equal to the last bit, except where that depends on the machine.

    Args:
        ours: what stands in a file of statistics or of statistics by instance.
        theirs: the same of HELM's.
    """
    ours_loose: list[dict[str, Any]] = []
    theirs_loose: list[dict[str, Any]] = []
    # The text tells 1 from 1.0.
    assert json.dumps(_exact_part(ours, ours_loose)) == json.dumps(_exact_part(theirs, theirs_loose))
    for stat, expected in zip(ours_loose, theirs_loose, strict=True):
        tolerance = _tolerance(stat)
        for key in ("sum", "min", "max", "mean"):
            assert stat[key] == pytest.approx(expected[key], rel=tolerance, abs=tolerance), stat["name"]
        if tolerance == LAST_DIGITS:
            for key, least in {"sum_squared": tolerance, "variance": tolerance, "stddev": SPREAD}.items():
                assert stat[key] == pytest.approx(expected[key], rel=tolerance, abs=least), stat["name"]


def _exact_part(value: Any, loose: list[dict[str, Any]]) -> Any:
    """What must be equal to the last bit; the other statistics go into `loose`."""
    if isinstance(value, list):
        return [_exact_part(item, loose) for item in value]
    if isinstance(value, dict) and "count" in value and _tolerance(value) is not None:
        loose.append(value)
        # A variance that a last digit makes negative is 0 in place of 0.0.
        kinds = {key: None if key == "variance" else type(item).__name__ for key, item in value.items()}
        return kinds | {"name": value["name"], "count": value["count"]}
    if isinstance(value, dict):
        return {key: _exact_part(item, loose) for key, item in value.items()}
    return value


def _tolerance(stat: dict[str, Any]) -> float | None:
    name = stat["name"]["name"]
    if name.startswith("platt_"):
        return SOLVER
    return LAST_DIGITS if name == "max_prob" or name.startswith("ece_") else None
