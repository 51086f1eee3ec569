"""Questions that are put several times, and what several answers to one are worth."""

from __future__ import annotations

from typing import Any


def load(count: int = 12, **_: Any) -> dict[str, Any]:
    """Questions by number."""
    from datasets import Dataset

    return {"test": Dataset.from_list([{"number": n, "answer": str(n)} for n in range(count)])}


def any_right(doc: dict[str, Any], results: list[Any]) -> dict[str, float]:
    """Whether one of the answers that a filter leaves is right."""
    answers = results[0] if isinstance(results[0], list) else results
    return {"exact_match": float(doc["answer"] in answers)}


def grade(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Full marks for the right number, a quarter for one that is not far from it."""
    distance = abs(int(results[0].split()[-1]) - int(doc["answer"]))
    return {"closeness": 1.0 if not distance else 0.25}


def words(resps: list[list[str]], docs: list[dict[str, Any]]) -> list[list[list[str]]]:
    """Each answer's words: lists, which nobody can count."""
    return [[text.split() for text in texts] for texts in resps]
