"""Repeats that can hardly say what they are asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from assay.client.request_shape import shape_of
from assay.tasks.repeats import pipelines_of_single_answers
from assay.tasks.selection import some_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.tasks.protocol import Task
    from assay.types import ModelSpec, TaskOptions


def repeat_warnings(tasks: Mapping[str, Task], options: TaskOptions, model: ModelSpec) -> list[str]:
    """Repeats that can hardly say what they are asked for; one line each.

    Args:
        tasks: lm-eval's Task objects by name, the options applied.
        options: the user's.
        model: how they are asked.
    """
    if options.repeats is None:
        return []
    generating = {name: task for name, task in tasks.items() if task.OUTPUT_TYPE == "generate_until"}
    found = []
    if others := [name for name in tasks if name not in generating]:
        found.append(f"repeats = {options.repeats} does not count for {some_of(others)}, where nothing is generated")
    if options.repeats == 1:
        return found
    if alike := [name for name, task in generating.items() if _temperature(task, model) == 0]:
        found.append(
            f"the {options.repeats} answers to each document of {some_of(alike)} can hardly differ: the temperature is "
            "0; give another, for example --gen-kwargs temperature=0.6"
        )
    if not model.distinct_repeat_seeds and (seeded := [name for name in generating if name not in alike]):
        found.append(
            f"the {options.repeats} answers to each document of {some_of(seeded)} are asked for with one seed, with "
            "which a server that honours seeds gives them alike; leave out --no-distinct-repeat-seeds"
        )
    if whole := [name for name, task in generating.items() if _votes_on_whole_texts(task)]:
        found.append(
            f"maj@{options.repeats} of {some_of(whole)} counts whole texts as votes, for the task's code finds the "
            "answer in a text only when it scores it; a filter_list that takes the answer out mends that"
        )
    return found


def _temperature(task: Task, model: ModelSpec) -> float | None:
    """The temperature that is sent; None where the server is left to choose."""
    settings = task.get_config("generation_kwargs") or {}
    body = json.dumps({"temperature": settings.get("temperature", 0)}).encode()
    sent: float | None = json.loads(shape_of(model).applied(body)).get("temperature")
    return sent


def _votes_on_whole_texts(task: Task) -> bool:
    from lm_eval.filters.selection import TakeFirstFilter

    steps = [make() for pipeline in pipelines_of_single_answers(task) for make in pipeline.alone.filters]
    return bool(task.get_config("process_results")) and all(isinstance(step, TakeFirstFilter) for step in steps)
