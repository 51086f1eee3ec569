"""The demo: a small real model, served on this machine by llama.cpp, evaluated on a small task of Assay's own.

It may import ``types`` and ``_util``; only ``cli`` imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from assay.types import Check, ModelSpec, Specification, TaskOptions

if TYPE_CHECKING:
    from assay.demo.server import DemoServer

TASK = "assay_demo"

TASK_FOLDER = Path(__file__).parent / "tasks"
"""Holds the task's YAML and its rows; an ``--include-path`` for Assay and for lm-eval."""

MINIMUM = 0.4
"""The score that the demo's check demands; SmolLM2-135M-Instruct in 4 bits reaches about 0.6."""


def demo_specification(server: DemoServer, output_dir: Path) -> Specification:
    """Describe the demo's run: its task, asked of a running demo server, with one check.

    Args:
        server: a started server; it is asked as many requests at once as it has slots.
        output_dir: where results and journal go.
    """
    return Specification(
        tasks=(TASK,),
        model=ModelSpec(base_url=server.base_url, model=server.model, concurrency=server.slots),
        options=TaskOptions(include_path=str(TASK_FOLDER)),
        checks=(Check(metric="exact_match,get-answer", min=MINIMUM, task=TASK),),
        output_dir=str(output_dir),
    )
