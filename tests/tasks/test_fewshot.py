"""Few-shot examples are written once where that changes nothing, and left to lm-eval where it would."""

import json
from typing import Any

import pytest

from assay.tasks.chat_text import ChatPrompt, Opening
from assay.tasks.patches.fewshot import (
    cache_fewshot_examples,
    changes_examples,
    drop_unused_examples,
    examples_restored,
)
from assay.tasks.prompts import ContextBuilder, chat_prompt
from assay.types import TaskOptions
from tests.small_tasks import TEST, Call, MakeTask

COUNTING = """
calls = []

def ask(doc):
    calls.append(doc["q"])
    return "Q: " + doc["q"]

def answer(doc):
    return doc["a"]
"""

DRAWING = """
import random

def ask(doc):
    return f"Q: {doc['q']} {random.random()}"
"""


def prompts(task: Any, options: TaskOptions | None = None, *, is_chat: bool = True) -> list[Any]:
    cache_fewshot_examples(task)
    builder = ContextBuilder(task, options or TaskOptions(), chat_prompt if is_chat else None)
    return [builder.context(doc) for doc in task.eval_docs]


def shares_examples(found: list[Any]) -> bool:
    """Whether the later prompts have one opening in common."""
    return len({id(prompt.opening) for prompt in found[3:]}) == 1 and bool(found[-1].opening.text)


def test_the_same_examples_are_written_once(make_task: MakeTask) -> None:
    task = make_task(COUNTING, doc_to_text=Call("ask"), doc_to_target=Call("answer"))
    calls = task.config.doc_to_text.__globals__["calls"]
    calls.clear()
    found = prompts(task)
    assert shares_examples(found)
    assert not any(prompt.opening.text for prompt in found[:3]), "three are written by lm-eval, to be sure"
    assert sum("×" in call for call in calls) == 3, "each example is rendered once"
    assert [call for call in calls if "+" in call] == [row["q"] for row in TEST]


@pytest.mark.parametrize(
    "changes",
    [
        {"fewshot_config": {"sampler": "default"}},
        {"fewshot_split": "test"},
        {"num_fewshot": 0},
        {"python": DRAWING, "doc_to_text": Call("ask")},
    ],
)
def test_examples_that_may_differ_are_left_to_lm_eval(make_task: MakeTask, changes: dict[str, Any]) -> None:
    assert not shares_examples(prompts(make_task(**changes)))


def test_a_task_asked_without_examples_holds_none(make_task: MakeTask) -> None:
    with_examples, without, own = make_task(), make_task(num_fewshot=0), make_task(num_fewshot=0)

    class Own(type(own)):  # type: ignore[misc]
        """May look at the pool in spite of that."""

    own.__class__ = Own
    expected = prompts(make_task(num_fewshot=0))
    for task in (with_examples, without, own):
        drop_unused_examples(task)
    assert [bool(task.sampler.df) for task in (with_examples, without, own)] == [True, False, True]
    assert prompts(without) == expected


def test_so_are_examples_within_one_turn_and_plain_text(make_task: MakeTask) -> None:
    assert not shares_examples(prompts(make_task(), TaskOptions(fewshot_as_multiturn=False)))
    assert all(isinstance(prompt, str) for prompt in prompts(make_task(), is_chat=False))


def test_so_are_the_examples_of_a_task_class_of_its_own(make_task: MakeTask) -> None:
    task = make_task()

    class Own(type(task)):  # type: ignore[misc]
        def fewshot_context(self, *args: Any, **options: Any) -> Any:
            return super().fewshot_context(*args, **options)

    task.__class__ = Own
    assert not shares_examples(prompts(task))


def test_examples_rendered_with_random_numbers_are_rendered_anew(make_task: MakeTask) -> None:
    task = make_task(DRAWING, doc_to_text=Call("ask"))
    cache_fewshot_examples(task)
    example = task.sampler.df[0]
    assert task.doc_to_text(example) != task.doc_to_text(example)


DRAWING_ELSEWHERE = """
import random
import numpy as np

own = random.Random(3)

def of_numpy(doc):
    return f"Q: {doc['q']} {np.random.random()}"

def of_its_own(doc):
    return f"Q: {doc['q']} {own.random()}"

def of_the_example(doc):
    doc["times"] = doc.get("times", 0) + 1
    return f"Q: {doc['q']} {doc['times']}"
"""


@pytest.mark.parametrize("function", ["of_numpy", "of_its_own", "of_the_example"])
def test_so_are_those_that_other_numbers_or_the_examples_themselves_change(make_task: MakeTask, function: str) -> None:
    task = make_task(DRAWING_ELSEWHERE, doc_to_text=Call(function))
    cache_fewshot_examples(task)
    example = task.sampler.df[0]
    untouched = dict(example)
    with examples_restored(task):
        assert task.doc_to_text(example) != task.doc_to_text(example)
        assert changes_examples(task) == (function == "of_the_example")
    assert example == untouched
    assert not changes_examples(task)


def test_remembering_twice_is_remembering_once(make_task: MakeTask) -> None:
    task = make_task()
    cache_fewshot_examples(task)
    once = task.doc_to_text
    cache_fewshot_examples(task)
    assert task.doc_to_text is once


def test_examples_are_told_apart_by_template(make_task: MakeTask) -> None:
    task = make_task()
    cache_fewshot_examples(task)
    example = task.sampler.df[0]
    for _ in range(2):
        assert task.doc_to_text(example, "{{n}}") == "0"
        assert task.doc_to_text(example, "n={{n}}") == "n=0"
        assert task.doc_to_target(example) == "0"


@pytest.mark.parametrize("text", ["[é 🎉\x7f", '["\\', ""])
@pytest.mark.parametrize("rest", ["→]", ""])
def test_a_prompt_with_an_opening_is_the_prompt(text: str, rest: str) -> None:
    parted, whole = ChatPrompt(rest, Opening(text)), ChatPrompt(text + rest)
    assert parted.encode("utf-8") == whole.encode("utf-8") == (text + rest).encode()
    assert parted.escaped == whole.escaped
    assert parted.quoted == whole.quoted == json.dumps(text + rest, ensure_ascii=False).encode()
    assert parted.sha256() == whole.sha256()


def test_a_chat_prompt_is_json_with_nothing_escaped_that_need_not_be() -> None:
    turns = [{"role": "user", "content": "é"}]
    assert chat_prompt(turns).encode("utf-8").decode() == json.dumps(turns, ensure_ascii=False)
