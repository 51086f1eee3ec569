"""Writes prompts as lm-eval does.

Where a task puts the same examples before every question, they are written once and then set into each conversation;
:class:`ContextBuilder` finds out whether that is so, and leaves everything to lm-eval where it is not.
"""

from __future__ import annotations

import functools
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from assay.tasks.chat_text import ChatPrompt, Opening, conversation_json, turn_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.tasks.protocol import Task
    from assay.types import TaskOptions

    Turn = dict[str, str]


_CERTAIN = 3
"""After so many conversations in a row with the same examples, these are not written anew."""


def chat_prompt(chat_history: Sequence[Turn], add_generation_prompt: bool = True) -> ChatPrompt:  # noqa: ARG001
    """The prompt that lm-eval's chat client makes of a conversation."""
    return ChatPrompt(conversation_json(chat_history))


class ContextBuilder:
    """Writes the prompt before each document's answer, as the task's ``fewshot_context`` does; in document order."""

    def __init__(self, task: Task, options: TaskOptions, chat_template: Callable[..., Any] | None) -> None:
        self._task = task
        self._options = options
        self._shots: int = task.get_config("num_fewshot") or 0
        self.chat_template = chat_template
        """Makes a prompt of a conversation; None where prompts are plain text."""
        is_known = chat_template is chat_prompt and self._shots and options.fewshot_as_multiturn
        self._observer = _Observer() if is_known and _may_have_same_examples(task) else None

    def context(self, doc: Any) -> Any:
        """The prompt for one document: text, a :class:`ChatPrompt`, or several where the task wants several."""
        if self._observer is None:
            return self._render(doc, self._shots, self.chat_template)
        if (examples := self._observer.examples) is not None:
            return self._render(doc, 0, examples.insert_into)
        with self._observer.watching_random_numbers():
            return self._render(doc, self._shots, self._observer.chat_template)

    def _render(self, doc: Any, shots: int, template: Callable[..., Any] | None) -> Any:
        return self._task.fewshot_context(
            doc,
            num_fewshot=shots,
            system_instruction=self._options.system_instruction,
            apply_chat_template=template is not None,
            fewshot_as_multiturn=self._options.fewshot_as_multiturn,
            chat_template=template,
            gen_prefix=self._task.doc_to_prefix(doc),
        )


class _Observer:
    """Watches lm-eval write the first conversations, to find out whether all hold the same examples."""

    def __init__(self) -> None:
        self.examples: _Examples | None = None
        """What the last few conversations had in common; None while that is not certain."""
        self._last: list[Turn] = []
        self._times_seen = 0

    def chat_template(self, chat_history: list[Turn], add_generation_prompt: bool = True) -> ChatPrompt:
        """:func:`chat_prompt`, noting the examples."""
        question_turns = 1 if add_generation_prompt else 2  # a `gen_prefix` stands in a turn of its own
        examples = chat_history[_after_system(chat_history) : -question_turns]
        self._times_seen = self._times_seen + 1 if examples == self._last else 1
        self._last = examples
        return chat_prompt(chat_history)

    @contextmanager
    def watching_random_numbers(self) -> Iterator[None]:
        """Render a prompt in this block; if that draws random numbers, the next prompt is meant to differ."""
        before = random.getstate()
        yield
        if random.getstate() != before:
            self._times_seen = 0
        elif self._times_seen == _CERTAIN:
            self.examples = _Examples(self._last)


class _Examples:
    """Few-shot turns that stand after the system turn, or first if there is none, in every conversation of a task."""

    def __init__(self, turns: list[Turn]) -> None:
        self._text = conversation_json(turns)[1:-1]
        self._opening = functools.lru_cache(maxsize=8)(self._opening_with)

    def insert_into(self, chat_history: list[Turn], add_generation_prompt: bool = True) -> ChatPrompt:  # noqa: ARG002
        """:func:`chat_prompt` of a conversation that was written without the examples, with them."""
        place = _after_system(chat_history)
        system = chat_history[0]["content"] if place else None
        return ChatPrompt(conversation_json(chat_history[place:])[1:], self._opening(system))

    def _opening_with(self, system: str | None) -> Opening:
        before = "" if system is None else turn_json({"role": "system", "content": system}) + ", "
        return Opening(f"[{before}{self._text}, ")


def _may_have_same_examples(task: Task) -> bool:
    """Whether lm-eval's own code chooses the examples, and chooses them without regard to document and chance."""
    from lm_eval.api.samplers import FirstNSampler
    from lm_eval.api.task import ConfigurableTask

    return (
        isinstance(task, ConfigurableTask)
        and _is_inherited(task, "fewshot_context", ConfigurableTask)
        and _is_inherited(task, "build_qa_turn", ConfigurableTask)
        and type(getattr(task, "sampler", None)) is FirstNSampler
        and task.fewshot_cfg.split != task.config.test_split
        and not task.multiple_input
    )


def _is_inherited(task: Task, method: str, base: type) -> bool:
    return getattr(getattr(task, method), "__func__", None) is getattr(base, method)


def _after_system(chat_history: Sequence[Turn]) -> int:
    return 1 if chat_history[0]["role"] == "system" else 0
