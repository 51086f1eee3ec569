"""Rows of the tasks that log-likelihoods are tested on."""

from __future__ import annotations

from typing import Any


def load(**_: Any) -> dict[str, Any]:
    """Twelve questions, some with a blank at the end, choices of unlike length, and texts of up to some 300 tokens."""
    from datasets import Dataset

    rows = [
        {
            "question": f"What is the {'river ' * (number % 3)}number {number} of the week?{' ' * (number % 2)}",
            "choices": [f"day {number}", "the answer is none", "日曜日", f"{number * 37}"],
            "answer": number % 4,
            "text": f"The days of week {number} are:\n\n" * (2 * number) + "Monday and so on.",
        }
        for number in range(12)
    ]
    return {"test": Dataset.from_list(rows)}
