"""Functions that change the documents that they are given."""

from __future__ import annotations

from typing import Any


def question(doc: dict[str, Any]) -> str:
    doc["asked"] = True
    doc["choices"].clear()
    return f"Q: {doc['question']}\nA:"


def score(doc: dict[str, Any], results: Any) -> dict[str, Any]:
    as_asked = float("asked" in doc or not doc["choices"])
    right = float(results[0].strip() == doc["answer"])
    doc["said"] = results[0]
    doc["answer"] += "!"
    return {"as_asked": as_asked, "right": right}


def numbered(doc: dict[str, Any]) -> str:
    doc["times"] = doc.get("times", 0) + 1
    return f"{doc['times']}. Q: {doc['question']}\nA:"
