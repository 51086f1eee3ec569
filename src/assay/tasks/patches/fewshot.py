"""Few-shot examples are rendered once, and not held where a task is asked without any.

The same few examples stand in thousands of prompts; lm-eval renders them anew for every document.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from assay.tasks.documents import copied, may_be_changed
from assay.tasks.randomness import detects_drawing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.tasks.protocol import Task

_RENDERING_METHODS = ("doc_to_text", "doc_to_target", "doc_to_choice")


def drop_unused_examples(task: Task) -> None:
    """Let a task that is asked without examples go without its pool, which may be a whole split.

    A task with Python of its own may look at it all the same, and keeps it.
    """
    from lm_eval.api.task import ConfigurableTask

    if type(task) is ConfigurableTask and not task.get_config("num_fewshot") and hasattr(task, "sampler"):
        task.sampler.df = []


def cache_fewshot_examples(task: Task) -> None:
    """Let the task keep the rendered texts of its few-shot pool. Doing it again changes nothing."""
    pool = getattr(getattr(task, "sampler", None), "df", None)
    if not pool or _pool_of(task) is not None:
        return
    examples = _Pool(pool, may_change=may_be_changed(task))
    for name in _RENDERING_METHODS:
        setattr(task, name, _Remembered(task, getattr(task, name), examples))


def changes_examples(task: Task) -> bool:
    """Whether the task's code was seen to change an example, so that prompts depend on those written before."""
    pool = _pool_of(task)
    return pool is not None and bool(pool.originals)


@contextmanager
def examples_restored(task: Task) -> Iterator[None]:
    """After this block, undo what the task's code has changed in its examples."""
    try:
        yield
    finally:
        if (pool := _pool_of(task)) is not None:
            pool.restore()


def _pool_of(task: Task) -> _Pool | None:
    render = task.doc_to_text
    return render.pool if isinstance(render, _Remembered) else None


class _Pool:
    """A task's few-shot examples."""

    def __init__(self, examples: Sequence[Any], *, may_change: bool) -> None:
        self.examples = {id(example): example for example in examples}
        """By identity. Holding the examples keeps their identities from being used again."""
        self.may_change = may_change
        self.originals: dict[int, Any] = {}
        """Of those that the task's code has changed, as they were, by identity."""

    def restore(self) -> None:
        for identity, original in self.originals.items():
            example = self.examples[identity]
            if isinstance(example, dict):
                example.clear()
                example.update(original)
        self.originals.clear()


class _Remembered:
    """Stands in for a rendering method: keeps what it gives for the examples, passes all other calls through."""

    def __init__(self, task: Task, render: Any, pool: _Pool) -> None:
        self.pool = pool
        self._task = task
        self._render = render
        self._kept: dict[Any, Any] = {}

    def __call__(self, doc: Any, *template: Any) -> Any:
        if id(doc) not in self.pool.examples:
            return self._render(doc, *template)
        # By the template's identity: it belongs to the task's configuration, and may be a list.
        key = (id(doc), *map(id, template))
        if key in self._kept:
            return self._kept[key]
        rendered, is_always_so = self._rendered(doc, template)
        if is_always_so:
            self._kept[key] = rendered
        return rendered

    def _rendered(self, doc: Any, template: Sequence[Any]) -> tuple[Any, bool]:
        """The text, and whether every rendering gives the same."""
        if not self.pool.may_change:  # a template, which can draw from the one stream alone
            before = random.getstate()
            return self._render(doc, *template), random.getstate() == before
        original = copied(doc)
        with detects_drawing(self._task) as nothing_drawn:
            rendered = self._render(doc, *template)
        if not _are_equal(doc, original):
            self.pool.originals.setdefault(id(doc), original)
            return rendered, False
        return rendered, nothing_drawn()


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays
        return False
