"""What the tests of gates share: a server that can add."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.servers.scripted import ScriptedServer

KEY = "exact_match,get-answer"
TASKS = Path(__file__).parents[1] / "evaluation_tasks"


def right(body: dict[str, Any]) -> str:
    question = body["messages"][-1]["content"]
    return f"The answer is {sum(int(word) for word in question.split() if word.isdigit())}"


def wrong(body: dict[str, Any]) -> str:
    return "The answer is 7"


@pytest.fixture
def server() -> Any:
    with ScriptedServer(answer=right, models=["scripted"]) as running:
        yield running
