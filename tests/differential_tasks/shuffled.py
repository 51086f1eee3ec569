"""Documents of GPQA's layout, their choices shuffled as lm-eval's GPQA tasks do it: anew at each preparation."""

from __future__ import annotations

import random
from typing import Any

import datasets

stream = random.Random(42)


def load(**_: Any) -> dict[str, Any]:
    rows = [
        {
            "Question": f"Which is right, {n}?",
            "Correct Answer": f"right {n}",
            **{f"Incorrect Answer {place}": f"wrong {n} {place}" for place in (1, 2, 3)},
        }
        for n in range(20)
    ]
    return {"train": datasets.Dataset.from_list(rows)}


def prepare(dataset: Any) -> Any:
    def with_choices(doc: Any) -> dict[str, str]:
        choices = [*(doc[f"Incorrect Answer {place}"] for place in (1, 2, 3)), doc["Correct Answer"]]
        stream.shuffle(choices)
        answer = choices.index(doc["Correct Answer"])
        return {f"choice{place}": choice for place, choice in enumerate(choices, 1)} | {"answer": f"({'ABCD'[answer]})"}

    return dataset.map(with_choices)
