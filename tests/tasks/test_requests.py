"""Bodies and keys of requests, beside what lm-eval's own client makes of the same task."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

from assay.errors import UnsupportedTaskError
from assay.tasks.chat_text import ChatPrompt, escaped
from assay.tasks.prompts import chat_prompt
from assay.tasks.requests import RequestWriter, generation_payload, request_key, samples
from assay.tasks.selection import documents_of
from assay.types import EndpointKind, ModelSpec, TaskOptions, TextTail, TokenSpan
from tests.small_tasks import TEST, Call, MakeTask

URL = "http://127.0.0.1:1/v1/"


def spec(endpoint: EndpointKind = "chat", seed: int = 1234) -> ModelSpec:
    return ModelSpec(base_url="http://127.0.0.1:1", model="m", endpoint=endpoint, seed=seed)


def lm_evals_client(endpoint: EndpointKind) -> Any:
    if endpoint == "chat":
        return LocalChatCompletion(model="m", base_url=f"{URL}chat/completions")
    return LocalCompletionsAPI(model="m", base_url=f"{URL}completions", tokenizer_backend=None)


def lm_evals_bodies(task: Any, endpoint: EndpointKind, options: TaskOptions) -> list[bytes]:
    """What lm-eval sends for every document, by its own code from end to end."""
    client = lm_evals_client(endpoint)
    task.build_all_requests(
        system_instruction=options.system_instruction,
        apply_chat_template=endpoint == "chat",
        fewshot_as_multiturn=options.fewshot_as_multiturn,
        chat_template=client.apply_chat_template if endpoint == "chat" else None,
        tokenizer_name="",
    )
    bodies = []
    for instance in task.instances:
        prompt, gen_kwargs = instance.args
        payload = client._create_payload(
            client.create_message([prompt]),
            generate=True,
            gen_kwargs=dict(gen_kwargs),
            seed=1234,
            eos=client.eos_string,
        )
        bodies += [json.dumps(payload).encode()] * instance.repeats
    return bodies


def our_bodies(task: Any, endpoint: EndpointKind, options: TaskOptions) -> list[bytes]:
    made = samples("small", task, RequestWriter(spec(endpoint)), options)
    return [request.payload for sample in made for request in sample.requests]


SHUFFLED = """
import random

def ask(doc):
    words = ["one", "two", "three"]
    random.shuffle(words)
    return f"{doc['q']} {words}"
"""

TASKS: dict[str, dict[str, Any]] = {
    "same examples": {},
    "examples by chance": {"fewshot_config": {"sampler": "default"}},
    "no examples": {"num_fewshot": 0},
    "examples from the test split": {"fewshot_split": "test"},
    "a description": {"description": "Ünder all: \n"},
    "a description of each document": {"description": "About {{q}}\n"},
    "a prefix of the answer": {"gen_prefix": "The answer is"},
    "a prefix of each answer": {"gen_prefix": "{% if n % 2 %}Odd:{% endif %}"},
    "examples of another form": {
        "fewshot_config": {"sampler": "first_n", "doc_to_text": "E: {{q}}", "doc_to_target": "is {{a}}"}
    },
    "several answers asked for": {"repeats": 3},
    "random questions": {"python": SHUFFLED, "doc_to_text": Call("ask")},
    "no settings": {"generation_kwargs": None},
    "many stops": {"generation_kwargs": {"until": list("abcdef"), "top_p": 0.9, "do_sample": True}},
    "one stop": {"generation_kwargs": {"until": "é", "max_tokens": 5, "max_gen_toks": 9}},
}


SETTINGS: list[tuple[EndpointKind, str | None, bool]] = [
    ("chat", None, True),
    ("chat", "Be brief — or else.", True),
    ("chat", "Be brief — or else.", False),
    ("completions", "Be brief — or else.", False),
]


@pytest.mark.parametrize("kind", TASKS)
def test_bodies_are_lm_evals_byte_for_byte(make_task: MakeTask, kind: str) -> None:
    # Each engine has a task of its own, so that both find the random streams where they begin.
    theirs, ours = make_task(**TASKS[kind]), make_task(**TASKS[kind])
    for endpoint, system, multiturn in SETTINGS:
        for task in (theirs, ours):
            task.set_fewshot_seed(1234)
        options = TaskOptions(system_instruction=system, fewshot_as_multiturn=multiturn)
        random.seed(0)
        expected = lm_evals_bodies(theirs, endpoint, options)
        random.seed(0)
        assert our_bodies(ours, endpoint, options) == expected
        assert len(expected) == len(TEST) * TASKS[kind].get("repeats", 1)


def test_generation_settings_are_shared_and_not_changed(make_task: MakeTask) -> None:
    task = make_task()
    before = dict(task.get_config("generation_kwargs"))
    made = list(samples("small", task, RequestWriter(spec()), TaskOptions()))
    assert len({id(sample.instances[0].args[1]) for sample in made}) == 1
    assert made[0].instances[0].args[1] == before == task.dump_config()["generation_kwargs"]
    # The same settings for another seed are another body.
    other = list(samples("small", task, RequestWriter(spec(seed=5)), TaskOptions()))
    assert all(json.loads(sample.requests[0].payload)["seed"] == 5 for sample in other)
    task.set_config("generation_kwargs", {"max_gen_toks": 99}, update=True)
    changed = next(samples("small", task, RequestWriter(spec()), TaskOptions()))
    assert json.loads(changed.requests[0].payload)["max_tokens"] == 99


@given(st.text())
def test_escaping_is_what_json_dumps_does(text: str) -> None:
    assert escaped(json.dumps(text, ensure_ascii=False)) == json.dumps(text).encode()


@given(
    st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text()}), min_size=1)
)
def test_a_payload_is_json_as_python_writes_it(turns: list[dict[str, str]]) -> None:
    payload = generation_payload(chat_prompt(turns), {"until": ["é"]}, spec())
    assert payload == json.dumps(json.loads(payload)).encode()
    assert json.loads(payload)["messages"] == turns


@pytest.mark.parametrize("text", ["\x7f", "🎉", "\ud800", "\u2028", "é中", '"\\/', "\x00\x1f"])
def test_a_plain_prompt_is_json_as_python_writes_it(text: str) -> None:
    payload = generation_payload(text, {}, spec("completions"))
    assert payload == json.dumps(json.loads(payload)).encode()


def test_plain_text_cannot_be_sent_to_the_chat_endpoint() -> None:
    with pytest.raises(UnsupportedTaskError, match="plain text"):
        generation_payload("text", {}, spec())


def test_the_key_changes_with_each_of_its_parts() -> None:
    base: tuple[Any, ...] = (("task", 1, 2, 3), "chat", b"{}")
    others: list[tuple[Any, ...]] = [
        (("tasl", 1, 2, 3), "chat", b"{}"),
        (("task", 2, 2, 3), "chat", b"{}"),
        (("task", 1, 1, 3), "chat", b"{}"),
        (("task", 1, 2, 4), "chat", b"{}"),
        (("task", 1, 2, 3), "completions", b"{}"),
        (("task", 1, 2, 3), "chat", b"{ }"),
        (("task1", 12, 3, 0), "chat", b"{}"),
        (("task", 1, 2, 3), "chat", b"{}", TokenSpan(1, 2)),
        (("task", 1, 2, 3), "chat", b"{}", TokenSpan(2, 2)),
        (("task", 1, 2, 3), "chat", b"{}", TextTail("a")),
        (("task", 1, 2, 3), "chat", b"{}", TextTail("\ud800")),
    ]
    keys = {request_key(*parts) for parts in [base, *others]}
    assert len(keys) == 1 + len(others)
    assert request_key(*base) == request_key(*base)
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in keys)


def test_all_keys_of_a_task_differ(make_task: MakeTask) -> None:
    made = samples("small", make_task(repeats=2, rows=[TEST[0]] * 4), RequestWriter(spec()), TaskOptions())
    keys = [request.key for sample in made for request in sample.requests]
    assert len(set(keys)) == len(keys) == 8


@pytest.mark.parametrize(
    ("limit", "count"), [(None, 10), (3, 3), (3.9, 3), (99, 10), (0.25, 3), (0.01, 1), (1, 1), (1.0, 1)]
)
def test_the_limit_counts_documents_or_a_share_of_them(make_task: MakeTask, limit: float | None, count: int) -> None:
    task, options = make_task(), TaskOptions(limit=limit)
    assert len(documents_of("small", task, options)) == count
    assert [s.doc_id for s in samples("small", task, RequestWriter(spec()), options)] == list(range(count))


def test_samples_are_built_when_they_are_asked_for(make_task: MakeTask) -> None:
    python = "built = []\n\ndef ask(doc):\n    built.append(doc['n'])\n    return doc['q']\n"
    task = make_task(python, doc_to_text=Call("ask"), num_fewshot=0)
    built = task.config.doc_to_text.__globals__["built"]
    built.clear()
    made = samples("small", task, RequestWriter(spec()), TaskOptions())
    next(made)
    assert built == [0]
    next(made)
    assert built == [0, 1]


def test_a_prompt_is_hashed_by_its_unescaped_text() -> None:
    prompt = chat_prompt([{"role": "user", "content": "é"}])
    assert isinstance(prompt, ChatPrompt)
    assert prompt.encode("utf-8") == '[{"role": "user", "content": "é"}]'.encode()
