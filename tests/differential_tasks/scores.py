"""Scores that are not a number for every document: missing ones, NaN, texts, lists and pairs."""

from __future__ import annotations

import math
from typing import Any


def at_times_none(doc: Any, results: Any) -> dict[str, Any]:
    """The length of wrong answers only."""
    is_right = results[0].strip() == doc["answer"]
    return {"length": None if is_right else len(results[0]), "right": float(is_right)}


def mean_of_given(values: list[float | None]) -> float:
    given = [value for value in values if value is not None]
    return sum(given) / len(given)


def of_many_kinds(doc: Any, results: Any) -> dict[str, Any]:
    is_right = results[0].strip() == doc["answer"]
    return {
        "nan": math.nan if is_right else 0.5,
        "infinite": math.inf if is_right else 0.5,
        "verdicts": [is_right, True],
        "pair": (results[0].strip(), doc["answer"]),
        "named": {"right": int(is_right)},
        "text": results[0],
        **({"of_some": 2.0} if is_right else {}),
    }


def share_of_verdicts(items: list[list[bool]]) -> float:
    return sum(map(sum, items)) / sum(map(len, items))


def share_of_pairs(items: list[tuple[str, str]]) -> float:
    return sum(one == other for one, other in items) / len(items)


def count(items: list[dict[str, int]]) -> int:
    return sum(item["right"] for item in items)


def longest(items: list[str]) -> str:
    return max(items, key=len)
