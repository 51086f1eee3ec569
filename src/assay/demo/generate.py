"""Writes the demo's questions: ``python -m assay.demo.generate``.

Four kinds of question, drawn with a fixed seed, so that anybody can make the committed files again. Sums, which a model
of 135 million parameters is least sure of, are the largest part, so that its score stays well below 1.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from assay.demo import TASK_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 8

TEST_ROWS = {"sum": 30, "opposite": 25, "capital": 20, "sequence": 25}
"""Questions of each kind in the split ``test``."""

TRAIN_ROWS = 1
"""Few-shot examples of each kind, all of them put before every question."""

OPPOSITES = (
    "hot cold, up down, big small, fast slow, day night, open closed, happy sad, hard soft, high low, "
    "wet dry, full empty, rich poor, strong weak, early late, left right, good bad, black white, "
    "true false, first last, love hate, inside outside, north south, win lose, near far, thick thin, sweet sour, "
    "begin end"
)

CAPITALS = (
    "France Paris, Italy Rome, Spain Madrid, Germany Berlin, Japan Tokyo, China Beijing, Russia Moscow, Egypt Cairo, "
    "Greece Athens, Portugal Lisbon, Austria Vienna, Poland Warsaw, Hungary Budapest, Ireland Dublin, Norway Oslo, "
    "Sweden Stockholm, Finland Helsinki, Denmark Copenhagen, Turkey Ankara, Canada Ottawa, Peru Lima, Chile Santiago, "
    "Cuba Havana, Kenya Nairobi, Thailand Bangkok, Vietnam Hanoi, Iran Tehran, Iraq Baghdad, "
    "Australia Canberra"
)

Row = dict[str, str]


def generate_splits(seed: int = SEED) -> dict[str, list[Row]]:
    """Draw the rows of both splits; no question is in both."""
    rng = random.Random(seed)
    train, test = [], []
    for kind, questions in _all_questions().items():
        drawn = rng.sample(questions, TRAIN_ROWS + TEST_ROWS[kind])
        rows = [{"kind": kind, "question": question, "answer": answer} for question, answer in drawn]
        train.extend(rows[:TRAIN_ROWS])
        test.extend(rows[TRAIN_ROWS:])
    rng.shuffle(train)
    rng.shuffle(test)
    return {"train": train, "test": test}


def write_splits(folder: Path) -> None:
    """Write ``train.jsonl`` and ``test.jsonl`` into a folder, one row a line."""
    for split, rows in generate_splits().items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")


def _all_questions() -> dict[str, list[tuple[str, str]]]:
    return {
        "sum": [(f"What is {a} + {b}?", str(a + b)) for a in range(1, 10) for b in range(1, 10)],
        "opposite": [(f"What is the opposite of {word}?", opposite) for word, opposite in _pairs(OPPOSITES)],
        "capital": [(f"What is the capital of {country}?", city) for country, city in _pairs(CAPITALS)],
        "sequence": [
            (f"Continue: {', '.join(str(start + i) for i in range(5))}", str(start + 5)) for start in range(1, 60)
        ],
    }


def _pairs(table: str) -> Iterator[tuple[str, str]]:
    for entry in table.split(", "):
        left, right = entry.split()
        yield left, right


if __name__ == "__main__":
    write_splits(TASK_FOLDER)
