"""Rows of the tasks that Assay and lm-eval are both given."""

from __future__ import annotations

from typing import Any


def load(count: int = 12, **_: Any) -> dict[str, Any]:
    """Questions, and ten other ones for examples."""
    from datasets import Dataset

    def rows(first: int, size: int) -> Any:
        return Dataset.from_list(
            [
                {
                    "question": f"What is {n} + {n * 7}?",
                    "answer": str(n * 8),
                    "choices": ["one", "two", "three", f"many ({n})"],
                    "right": n % 4,
                }
                for n in range(first, first + size)
            ]
        )

    return {"train": rows(100, 10), "test": rows(0, count)}
