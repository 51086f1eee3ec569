"""Texts of which some are empty."""

from __future__ import annotations

from typing import Any


def load(**_: Any) -> dict[str, Any]:
    from datasets import Dataset

    texts = ["", "The days of the week are Monday, Tuesday.", "", " ", "The answer is (A)."]
    return {"test": Dataset.from_list([{"text": text} for text in texts])}
