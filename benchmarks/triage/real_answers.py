"""Published answers of real models as healthy runs: GSM8K (four models) and BIG-Bench Hard (code-davinci-002)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from assay.diagnosis.run import triage
from assay.tasks.library import load_tasks
from assay.types import TaskOptions
from benchmarks.triage.documents import KINDS, MatrixTask
from benchmarks.triage.matrix import Healthy, Part, first_causes
from benchmarks.triage.replies import Reply
from benchmarks.triage.running import run

_GSM8K_MODELS = ("175b_verification", "175b_finetuning", "6b_verification", "6b_finetuning")
Answers = Mapping[tuple[str, int], str]


def real_answers(model_outputs: Path, folder: Path) -> Iterator[Healthy]:
    """What triage says of them: each run by itself, and GSM8K's smaller models beside the best one.

    Args:
        model_outputs: with ``gsm8k/openai_example_model_solutions.jsonl`` and ``bbh/code-davinci-002.jsonl``.
        folder: for the runs' files.
    """
    by_model = {model: _gsm8k(model_outputs, model) for model in _GSM8K_MODELS}
    runs = {model: _run(folder / model, "gsm8k", answers) for model, answers in by_model.items()}
    best = runs[_GSM8K_MODELS[0]]
    for model, ran in runs.items():
        yield _judged("gsm8k", model, ran, None, Part.DEVELOPMENT)
        if ran != best:
            yield _judged("gsm8k", model, ran, best, Part.DEVELOPMENT)
    yield _judged("bbh", "code-davinci-002", _run(folder / "bbh", "bbh", _bbh(model_outputs)), None, Part.HELD_OUT)


def _run(folder: Path, kind: str, answers: Answers) -> Path:
    samples = {task: tuple(number for _, number in places) for task, places in groupby(answers, lambda place: place[0])}
    task = MatrixTask(kind, KINDS[kind], None, samples, {}, {}, {})
    return run(folder, task, lambda name, number: Reply(text=answers[name, number]))


def _judged(task: str, model: str, ran: Path, baseline: Path | None, part: Part) -> Healthy:
    found = triage(ran, baseline, score_again=False)
    said = first_causes(found)[:1]
    allowed = {"answers_worse"} if baseline else set()
    name, has_baseline = f"real answers, {model}", baseline is not None
    return Healthy(task, name, has_baseline, "".join(said), bool(set(said) - allowed), found.headline, part)


def _gsm8k(model_outputs: Path, model: str) -> Answers:
    """The first 400 answers, ending as lm-eval's examples do: the models were trained on ``A: 18``."""
    records = _records(model_outputs / "gsm8k" / "openai_example_model_solutions.jsonl")
    answers = {each["question"].strip(): each[model]["solution"].replace("\nA: ", "\n#### ") for each in records}
    return _by_place(("gsm8k",), "question", answers, most=400)


def _bbh(model_outputs: Path) -> Answers:
    records = [each for each in _records(model_outputs / "bbh" / "code-davinci-002.jsonl") if each["mode"] == "cot"]
    found: dict[tuple[str, int], str] = {}
    for task, of_task in groupby(records, lambda each: each["task"]):
        answers = {_question(each["prompt_after_shots"]): each["prediction"] for each in of_task}
        found.update(_by_place((f"bbh_cot_fewshot_{task}",), "input", answers, most=25))
    return found


def _question(prompt: str) -> str:
    return prompt.removeprefix("Q: ").partition("\nA:")[0].strip()


def _by_place(names: tuple[str, ...], field: str, answers: Mapping[str, str], most: int) -> Answers:
    """The answers by task and document, of the documents that have one."""
    loaded = load_tasks(names, TaskOptions(), {}).tasks
    found: dict[tuple[str, int], str] = {}
    for name, task in loaded.items():
        docs: list[Any] = list(task.eval_docs)
        known = ((number, answers.get(doc[field].strip())) for number, doc in enumerate(docs))
        found.update([((name, number), text) for number, text in known if text is not None][:most])
    return found


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
