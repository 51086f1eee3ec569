"""Which documents of a task are asked: all, the first, or chosen ones, as by lm-eval's ``limit`` and ``samples``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import FileFormatError, SpecificationError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from assay.tasks.protocol import Task
    from assay.types import TaskOptions


def chosen_documents(tasks: Mapping[str, Task], options: TaskOptions) -> dict[str, Sequence[int]]:
    """The numbers of the documents to ask, by task, in the tasks' own order.

    Args:
        tasks: lm-eval's Task objects by name.
        options: ``limit`` or ``samples`` chooses.

    Raises:
        SpecificationError: ``samples`` names a task that is not run, or a document that the task does not have.
    """
    refuse_samples_of_others(tasks, options)
    return {name: documents_of(name, task, options) for name, task in tasks.items()}


def refuse_samples_of_others(tasks: Collection[str], options: TaskOptions) -> None:
    """Refuse a choice of documents of a task that is not run.

    Args:
        tasks: the names of those to run.
        options: ``samples`` chooses.

    Raises:
        SpecificationError: names the task.
    """
    if unknown := [name for name in options.samples or () if name not in tasks]:
        raise SpecificationError(
            f"samples chooses documents of '{unknown[0]}', which is none of the tasks to run: {some_of(list(tasks))}"
        )


def documents_of(name: str, task: Task, options: TaskOptions) -> Sequence[int]:
    """The numbers of one task's documents to ask, in the task's own order.

    Raises:
        SpecificationError: ``samples`` names a document that the task does not have.
    """
    total = len(task.eval_docs)
    if options.samples is not None and name in options.samples:
        chosen = sorted(set(options.samples[name]))
        if chosen[-1] >= total:
            raise SpecificationError(
                f"samples chooses document {chosen[-1]} of '{name}', which has {total}: 0 to {total - 1}"
            )
        return chosen
    if options.limit is None:
        return range(total)
    return range(min(total, math.ceil(total * options.limit) if options.limit < 1 else int(options.limit)))


def count_chosen(name: str, numbers: Collection[int], options: TaskOptions) -> int:
    """How many of an earlier run's documents the options choose, where the task still has all of them.

    Args:
        name: the task.
        numbers: of the earlier run's documents.
        options: `limit` and `samples` count.
    """
    if options.samples is not None and name in options.samples:
        return len(set(options.samples[name]) & set(numbers))
    if options.limit is None:
        return len(numbers)
    if options.limit < 1:
        return math.ceil(len(numbers) * options.limit)
    return sum(number < options.limit for number in numbers)


def describe_part(tasks: Sequence[Task], options: TaskOptions) -> str | None:
    """Say which part of some tasks' documents is asked: "the first 15 of 60 documents"; None where that is all.

    Args:
        tasks: lm-eval's Task objects.
        options: ``limit`` or ``samples`` chooses.
    """
    total = sum(len(task.eval_docs) for task in tasks)
    asked = sum(len(documents_of(task.task_name, task, options)) for task in tasks)
    if asked == total:
        return None
    if options.samples is not None:
        return f"{asked} chosen of {total} documents"
    return f"the first {asked} of {total} documents" + (f" of its {len(tasks)} tasks" if len(tasks) > 1 else "")


def parse_samples(text: str) -> dict[str, tuple[int, ...]]:
    """Read ``{"task": [0, 5, 7], …}``, or the file of that name that holds it.

    Raises:
        SpecificationError: it is neither, or something else than numbers is chosen.
        FileFormatError: the file is no JSON.
    """
    try:
        chosen = json.loads(text)
    except (ValueError, RecursionError):
        chosen = _read(text)
    validate_samples(chosen)
    return {name: tuple(numbers) for name, numbers in chosen.items()}


def validate_samples(samples: Any) -> None:
    """Refuse choices that could not be meant.

    Raises:
        SpecificationError: with what is wrong.
    """
    if not isinstance(samples, dict) or not samples:
        raise SpecificationError('samples must name documents by task, as in {"gsm8k": [0, 5, 7]}')
    for name, numbers in samples.items():
        if not isinstance(numbers, list | tuple | range) or not numbers:
            raise SpecificationError(f"samples for '{name}' is {_shown(numbers)}; it must be a list of numbers")
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise SpecificationError(f"samples for '{name}' has {_shown(number)}; documents are numbered from 0")


def _read(text: str) -> Any:
    try:
        content = Path(text).read_bytes() if Path(text).is_file() else None
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        content = None
    if content is None:
        raise SpecificationError(f'samples is neither JSON such as {{"gsm8k": [0, 5, 7]}} nor a file: {_shown(text)}')
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"cannot read {text} as JSON: {error}") from None


def some_of(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
