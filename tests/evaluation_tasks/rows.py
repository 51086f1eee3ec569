"""Rows of the two tasks that whole runs are tested on."""

from __future__ import annotations

from typing import Any


def load(kind: str, **_: Any) -> dict[str, Any]:
    """Sixty questions, no two alike."""
    from datasets import Dataset

    rows = [
        {"question": f"{kind}: what is {number} + {number * 7} ?", "answer": str(number * 8)} for number in range(60)
    ]
    return {"test": Dataset.from_list(rows)}
