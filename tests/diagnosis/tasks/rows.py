"""Questions of the tasks that triage is tested on: GSM8K-like sums, and choices among four."""

from __future__ import annotations

import random
from typing import Any

NAMES = ("Tom", "Ana", "Li", "Omar", "Eva", "Raj", "Mia", "Jon")
THINGS = ("apples", "books", "coins", "pens", "stamps", "shells")
LETTERS = "ABCD"


def load(kind: str, count: int = 240, **_: Any) -> dict[str, Any]:
    from datasets import Dataset

    rows = [row(kind, number) for number in range(count + 4)]
    return {"train": Dataset.from_list(rows[:4]), "test": Dataset.from_list(rows[4:])}


def row(kind: str, number: int) -> dict[str, Any]:
    return _sum(number) if kind == "sums" else _choice(number)


def _sum(number: int) -> dict[str, Any]:
    draw = random.Random(f"sum {number}")
    name, thing = draw.choice(NAMES), draw.choice(THINGS)
    first, second = 10 + number, draw.randrange(3, 60)
    question = f"{name} has {first} {thing} and buys {second} more. How many {thing} does {name} have in the end?"
    return {
        "question": question,
        "answer": f"{name} has {first} + {second} = {first + second} {thing}.\n#### {first + second}",
    }


def _choice(number: int) -> dict[str, Any]:
    draw = random.Random(f"choice {number}")
    first, second = 10 + number, draw.randrange(3, 60)
    options = draw.sample([first + second + off for off in (-10, -1, 1, 10)], 3)
    right = draw.randrange(4)
    options.insert(right, first + second)
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True))
    return {
        "question": f"What is {first} + {second} ? Choose one of the options.\n{listed}",
        "options": [str(option) for option in options],
        "answer": LETTERS[right],
    }
