"""Few-shot examples are rendered once.

The same few examples stand in thousands of prompts; lm-eval renders them anew for every document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.tasks.protocol import Task

import random
from typing import Any

_RENDERING_METHODS = ("doc_to_text", "doc_to_target", "doc_to_choice")


def remember_fewshot_examples(task: Task) -> None:
    """Let the task keep the rendered texts of its few-shot pool. Doing it again changes nothing."""
    pool = getattr(getattr(task, "sampler", None), "df", None)
    if not pool or isinstance(task.doc_to_text, _Remembered):
        return
    examples = {id(example): example for example in pool}
    for name in _RENDERING_METHODS:
        setattr(task, name, _Remembered(getattr(task, name), examples))


class _Remembered:
    """Stands in for a rendering method: keeps what it gives for the examples, passes all other calls through."""

    def __init__(self, render: Any, examples: dict[int, Any]) -> None:
        self._render = render
        self._examples = examples
        """By identity. Holding the examples keeps their identities from being used again."""
        self._kept: dict[Any, Any] = {}

    def __call__(self, doc: Any, *template: Any) -> Any:
        if id(doc) not in self._examples:
            return self._render(doc, *template)
        # By the template's identity: it belongs to the task's configuration, and may be a list.
        key = (id(doc), *map(id, template))
        if key in self._kept:
            return self._kept[key]
        before = random.getstate()
        rendered = self._render(doc, *template)
        if random.getstate() == before:  # else each rendering is meant to differ
            self._kept[key] = rendered
        return rendered
