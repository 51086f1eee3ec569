"""Samples built in any order are those of a full run, also where few-shot examples are drawn in document order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UnsupportedTaskError
from assay.evaluation.any_order import SamplesInAnyOrder
from assay.tasks.library import load_tasks
from assay.tasks.requests import RequestWriter, samples
from assay.types import ModelSpec, Sample, TaskOptions

OPTIONS = TaskOptions(include_path=str(Path(__file__).parents[1] / "evaluation_tasks"))
WRITER = RequestWriter(ModelSpec(base_url="http://localhost", model="m"))


def load(name: str, options: TaskOptions = OPTIONS) -> Any:
    return load_tasks([name], options, {}).tasks[name]


def payloads(built: list[Sample]) -> list[bytes]:
    return [request.payload for sample in built for request in sample.requests]


@pytest.mark.parametrize("name", ["counting", "drawing"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_order_gives_the_samples_of_a_full_run(name: str, seed: int) -> None:
    in_order = list(samples(name, load(name), WRITER, OPTIONS))
    assert len(set(payloads(in_order))) == 60
    numbers = list(range(60))
    random.Random(seed).shuffle(numbers)
    source = SamplesInAnyOrder(name, load(name), WRITER, OPTIONS)
    built = sorted((source.sample(number) for number in numbers), key=lambda sample: sample.doc_id)
    assert payloads(built) == payloads(in_order)
    assert payloads([source.sample(17), source.sample(3)]) == payloads([in_order[17], in_order[3]])


def test_a_part_is_the_beginning_of_the_whole() -> None:
    part = SamplesInAnyOrder(
        "drawing", load("drawing"), WRITER, TaskOptions(limit=5, include_path=OPTIONS.include_path)
    )
    in_order = list(samples("drawing", load("drawing"), WRITER, OPTIONS))
    assert payloads([part.sample(4)]) == payloads([in_order[4]])


def test_prompts_from_a_shared_random_stream_are_refused() -> None:
    task = load("counting")
    task.doc_to_text = lambda doc, *_: f"{doc['question']} {random.random()}"
    source = SamplesInAnyOrder("counting", task, WRITER, OPTIONS)
    with pytest.raises(UnsupportedTaskError, match="without early stopping"):
        source.sample(5)


@pytest.mark.data
def test_gsm8k_with_drawn_examples(data_dir: Path) -> None:
    options = TaskOptions(data_dir=str(data_dir), limit=60)
    in_order = list(samples("gsm8k", load("gsm8k", options), WRITER, options))
    source = SamplesInAnyOrder("gsm8k", load("gsm8k", options), WRITER, options)
    numbers = [41, 3, 59, 0]
    built = [source.sample(number) for number in numbers]
    assert payloads(built) == payloads([in_order[number] for number in numbers])
