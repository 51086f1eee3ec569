"""The tasks' samples as streams; samples of different streams may be asked in any order."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from assay.scheduling.schedule import Stream
from assay.tasks.randomness import may_draw_for_prompts
from assay.tasks.requests import samples
from assay.types import USUAL_MAX_GEN_TOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from assay.tasks.protocol import Task
    from assay.tasks.requests import RequestWriter
    from assay.types import Sample, TaskOptions


def streams(
    tasks: Mapping[str, Task],
    writer: RequestWriter,
    options: TaskOptions,
    refuse: Callable[[str, str], None] | None = None,
) -> list[Stream]:
    """One stream for each task; tasks whose prompts may draw from the same random numbers share one.

    Args:
        tasks: lm-eval's tasks, by name, in the run's order.
        writer: writes their requests.
        options: how their documents become requests.
        refuse: called with a task that cannot build a prompt, and the reason; None: the error is raised.
    """

    def of_task(name: str) -> Iterator[Sample]:
        return samples(name, tasks[name], writer, options, refuse and functools.partial(refuse, name))

    entangled = [name for name, task in tasks.items() if may_draw_for_prompts(task)]
    groups = [[name] for name in tasks if name not in entangled] + ([entangled] if entangled else [])
    return [
        Stream(
            tasks=names,
            samples=itertools.chain.from_iterable(map(of_task, names)),
            expected=max(longest_answer(tasks[name]) for name in names),
        )
        for names in groups
    ]


def longest_answer(task: Task) -> int:
    """Greatest number of tokens of an answer by the task's settings; 1 for log-likelihoods."""
    if task.OUTPUT_TYPE != "generate_until":
        return 1
    settings = task.get_config("generation_kwargs") or {}
    given = [settings.get(name) for name in ("max_tokens", "max_completion_tokens", "max_gen_toks")]
    return next((tokens for tokens in given if isinstance(tokens, int) and tokens > 0), USUAL_MAX_GEN_TOKS)
