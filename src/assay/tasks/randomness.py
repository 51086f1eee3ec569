"""Which of a task's code may draw random numbers from the streams of Python and NumPy, which all tasks share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import random
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assay.tasks.protocol import Task

_WRITE_PROMPTS = ("doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix", "description", "fewshot_config")


def may_draw_for_prompts(task: Task) -> bool:
    """Whether writing the prompts of `task`, an lm-eval Task, may draw from the streams that all tasks share."""
    kind: Callable[..., Any] = type(task)
    if kind.__name__ != "ConfigurableTask" and not never_draws(kind):
        return True
    return task.get_config("use_prompt") is not None or any(_may_draw(task.get_config(name)) for name in _WRITE_PROMPTS)


def _may_draw(value: Any) -> bool:
    match value:
        case str():
            return "random" in value and "{" in value  # a filter of Jinja's
        case dict():
            return any(map(_may_draw, value.values()))
        case list() | tuple():
            return any(map(_may_draw, value))
        case functools.partial():
            return _may_draw(value.func)
        case type():
            return False
    if dataclasses.is_dataclass(value):
        return any(map(_may_draw, vars(value).values()))
    return callable(value) and not never_draws(value)


@contextmanager
def random_state_restored(task: Task) -> Iterator[None]:
    """After this block, put every stream that `task` may draw from back to where it was."""
    own = list(_streams_of(task))
    states = [stream.getstate() for stream in own]
    shared, numpys = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        for stream, state in zip(own, states, strict=True):
            stream.setstate(state)
        random.setstate(shared)
        np.random.set_state(numpys)


@contextmanager
def detects_drawing(task: Task) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells, after the block, whether the streams that `task` may draw from are untouched."""
    own = list(_streams_of(task))
    before = [stream.getstate() for stream in own]
    shared, numpys = random.getstate(), np.random.get_state()

    def nothing_drawn() -> bool:
        (_, numbers, *rest), (_, earlier, *before_it) = np.random.get_state(), numpys
        return (
            random.getstate() == shared
            and rest == before_it
            and bool(np.array_equal(numbers, earlier))
            and [stream.getstate() for stream in own] == before
        )

    yield nothing_drawn


def _streams_of(task: Task) -> Iterator[random.Random]:
    """The streams that the task and its sampler hold, and those of the modules whose functions write its prompts."""
    written_by = [task.get_config(name) for name in _WRITE_PROMPTS]
    functions = [value.func if isinstance(value, functools.partial) else value for value in written_by]
    held = [vars(holder) for holder in (task, getattr(task, "sampler", None)) if hasattr(holder, "__dict__")]
    held += [
        getattr(function, "__globals__", {}) for function in [*functions, task.doc_to_text, task.construct_requests]
    ]
    own = {id(value): value for names in held for value in names.values() if isinstance(value, random.Random)}
    yield from own.values()


@functools.cache
def never_draws(code: Callable[..., Any]) -> bool:
    """Whether a function or class surely draws no random numbers: its file mentions none."""
    try:
        source = Path(inspect.getsourcefile(code) or "").read_text(encoding="utf-8")
    except (TypeError, OSError):
        return False
    return "random" not in source and "shuffle" not in source
