"""Turns between tasks change no request: also where prompts draw from random numbers that all tasks share."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from assay.evaluation.streams import longest_answer, streams
from assay.scheduling.schedule import LongestFirst
from assay.tasks.library import load_tasks
from assay.tasks.randomness import may_draw_for_prompts
from assay.tasks.requests import RequestWriter, samples
from assay.types import Answer, ModelSpec, Sample, TaskOptions

WRITER = RequestWriter(ModelSpec(base_url="http://localhost", model="m"))
SHARED = Path(__file__).parents[1] / "evaluation_tasks"
TEXT = '"{{question}}"'
PROMPTS = {
    "plain": f"doc_to_text: {TEXT}",
    "examples": f"doc_to_text: {TEXT}\nfewshot_split: test\nnum_fewshot: 2",
    "by_function": "doc_to_text: !function prompts.shuffled",
    "by_quiet_function": "doc_to_text: !function quiet.plain",
    "by_template": 'doc_to_text: "{{question.split() | random}} {{question}}"',
    "described": f'doc_to_text: {TEXT}\ndescription: "Answer a random question."',
}
FUNCTIONS = {
    "prompts.py": "import random\n\n\ndef shuffled(doc):\n    return f\"{doc['question']} {random.random()}\"\n",
    "quiet.py": "def plain(doc):\n    return doc['question']\n",
}


@pytest.fixture
def options(tmp_path: Path) -> TaskOptions:
    for name, content in FUNCTIONS.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "rows.py").write_text((SHARED / "rows.py").read_text())
    (tmp_path / "_template_yaml").write_text(
        (SHARED / "_template_yaml").read_text().replace(f"doc_to_text: {TEXT}", "")
    )
    for name, prompt in PROMPTS.items():
        settings = f"include: _template_yaml\ntask: {name}\ndataset_kwargs: {{kind: {name}}}\n{prompt}\n"
        (tmp_path / f"{name}.yaml").write_text(settings)
    return TaskOptions(include_path=str(tmp_path))


def load(options: TaskOptions, *names: str) -> dict[str, Any]:
    return dict(load_tasks(names, options, {}).tasks)


def payloads(built: list[Sample]) -> dict[tuple[str, int], list[bytes]]:
    return {(sample.task, sample.doc_id): [request.payload for request in sample.requests] for sample in built}


def test_who_may_draw_shared_numbers_for_prompts(options: TaskOptions) -> None:
    tasks = load(options, *PROMPTS)
    assert {name for name, task in tasks.items() if may_draw_for_prompts(task)} == {"by_function", "by_template"}


@pytest.mark.parametrize("seed", range(3))
def test_turns_change_no_request(options: TaskOptions, seed: int) -> None:
    names = list(PROMPTS)
    random.Random(seed).shuffle(names)
    tasks = load(options, *names)
    one_by_one = payloads([sample for name, task in tasks.items() for sample in samples(name, task, WRITER, options)])

    lengths = dict(zip(names, random.Random(seed).sample(range(1, 1000), len(names)), strict=True))
    schedule = LongestFirst(streams(load(options, *names), WRITER, options))
    built = []
    for sample in schedule:
        built.append(sample)
        schedule.learn(sample, [Answer(text="", completion_tokens=lengths[sample.task])])
    assert payloads(built) == one_by_one
    assert len({task for task, _ in list(payloads(built))[:20]}) > 2, "no turns were taken"


@pytest.mark.parametrize(
    ("settings", "tokens"), [({}, 256), ({"max_gen_toks": 2048}, 2048), ({"max_tokens": 7, "max_gen_toks": 9}, 7)]
)
def test_the_longest_answer_is_what_the_request_allows(settings: dict[str, Any], tokens: int) -> None:
    options = TaskOptions(include_path=str(SHARED), gen_kwargs=settings)
    assert longest_answer(load(options, "counting")["counting"]) == tokens


def test_a_log_likelihood_is_one_token() -> None:
    options = TaskOptions(include_path=str(SHARED.parent / "loglikelihood_tasks"))
    assert longest_answer(load(options, "choosing")["choosing"]) == 1
