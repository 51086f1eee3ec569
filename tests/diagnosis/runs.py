"""Runs of simulated models, for triage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from assay.evaluation import Evaluation, evaluate
from assay.types import Check, ModelSpec, Specification, TaskOptions
from tests.servers.scripted import Fault, ScriptedServer

TASKS = Path(__file__).parent / "tasks"
KEY = "exact_match,strict-match"


def run(
    output_dir: Path,
    *models: Callable[[dict[str, Any]], dict[str, Any]],
    tasks: tuple[str, ...] = ("sums",),
    faults: Sequence[Fault] = (),
    checks: tuple[Check, ...] = (),
    options: dict[str, Any] | None = None,
    triage: bool = True,
    probe: bool = False,
) -> Evaluation:
    """Evaluate a model; several of them are replicas behind endpoints of their own."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ScriptedServer(answer=model, models=["served"], faults=faults)) for model in models
        ]
        urls = [server.url for server in servers]
        return evaluate(
            Specification(
                tasks=tasks,
                model=ModelSpec(
                    base_url=urls[0], replicas=tuple(urls[1:]), model="served", concurrency=12, max_attempts=2
                ),
                options=TaskOptions(**{"include_path": str(TASKS), **(options or {})}),
                checks=checks,
                output_dir=str(output_dir),
                triage=triage,
                probe=probe,
            )
        )
