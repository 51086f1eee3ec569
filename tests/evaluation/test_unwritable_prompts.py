"""Prompts that a task's own code cannot write: found before the first request, or no other task's affair."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.errors import TaskConfigError
from assay.evaluation import evaluate
from assay.progress import Progress
from assay.rescoring.rescore import score
from assay.results.check_results import Verdict
from assay.tasks.library import load_tasks
from assay.tasks.requests import RequestWriter, samples, try_first_prompts
from assay.types import Check, EarlyStopping, FailureCause, ModelSpec, Specification, TaskOptions
from tests.servers.scripted import ScriptedServer

SHARED = Path(__file__).parents[1] / "evaluation_tasks"
KEY = "exact_match,get-answer"
STUMBLING = """
import random

own = random.Random(5)

def question(doc):
    if doc["question"].startswith("stumbling: what is {number} +"):
        raise IndexError("no such choice\\nin this document")
    return doc["question"]

def drawn(doc):
    return f"{doc['question']} {own.random()} {random.random()}"
"""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(answer=lambda _: "The answer is 8", models=["scripted"]) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    for file in SHARED.iterdir():
        if file.is_file():
            (folder / file.name).write_text(file.read_text())
    for name, function in (("stumbling", "question"), ("drawn", "drawn")):
        (folder / f"{name}.yaml").write_text(
            f"include: _template_yaml\ntask: {name}\ndataset_kwargs: {{kind: {name}}}\n"
            f"doc_to_text: !function code.{function}\n"
        )
    return folder


def stumble_at(folder: Path, number: int) -> None:
    (folder / "code.py").write_text(STUMBLING.replace("{number}", str(number)))


def specification(server: ScriptedServer, folder: Path, **changes: Any) -> Specification:
    return msgspec.structs.replace(
        Specification(
            tasks=("counting", "naming", "stumbling"),
            model=ModelSpec(base_url=server.url, model="scripted", concurrency=4),
            options=TaskOptions(include_path=str(folder)),
            output_dir=str(folder.parent / "results"),
        ),
        **changes,
    )


class Heard(Progress):
    def __init__(self) -> None:
        self.remarks: list[str] = []

    def noted(self, remark: str) -> None:
        self.remarks.append(remark)


def test_the_first_prompt_of_the_last_task_is_written_before_any_request(server: ScriptedServer, folder: Path) -> None:
    (folder / "wanting.yaml").write_text("include: drawing.yaml\ntask: wanting\nnum_fewshot: 60\n")
    reason = "task 'wanting' cannot write document 0's prompt: it needs 60 examples, and there are 60 to choose from"
    for early in (None, EarlyStopping()):
        with pytest.raises(TaskConfigError, match=reason):
            evaluate(
                specification(
                    server,
                    folder,
                    tasks=("counting", "wanting"),
                    checks=(Check(metric=KEY, task="counting", min=0.5),),
                    early_stopping=early,
                    probe=True,
                )
            )
    assert server.answered == []


def test_a_later_prompt_costs_its_own_task_only_and_no_answer(server: ScriptedServer, folder: Path) -> None:
    stumble_at(folder, 30)
    heard = Heard()
    checks = (Check(metric=KEY, task="stumbling", max=0.5), Check(metric=KEY, task="naming", max=0.5))
    run = evaluate(specification(server, folder, checks=checks), heard)
    assert {score.task: (score.n, score.failed) for score in run.scores} == {
        "counting": (60, 0),
        "naming": (60, 0),
        "stumbling": (0, 60),
    }
    assert [check.verdict for check in run.checks] == [Verdict.INVALID, Verdict.PASS]
    assert {(failed.task, failed.cause) for failed in run.failures} == {("stumbling", FailureCause.UNSCORABLE)}
    reason = "task 'stumbling' cannot write document 30's prompt: no such choice in this document (IndexError, code.py"
    (remark,) = (remark for remark in heard.remarks if "cannot write" in remark)
    assert {failed.message for failed in run.failures} == {remark}
    assert remark.startswith(reason)
    assert "answers are kept" in remark
    assert len(server.answered) == 150
    again = score(run.results_file)
    assert again.differences == ()
    stumble_at(folder, 99)
    mended = evaluate(specification(server, folder, checks=checks))
    assert mended.failures == ()
    assert len(server.answered) == 180
    assert mended.journal == run.journal


def test_where_a_run_may_stop_early_documents_without_a_prompt_decide_nothing(
    server: ScriptedServer, folder: Path
) -> None:
    stumble_at(folder, 30)
    run = evaluate(
        specification(
            server,
            folder,
            tasks=("stumbling", "naming"),
            checks=(Check(metric=KEY, task="stumbling", max=0.2), Check(metric=KEY, task="naming", max=0.5)),
            early_stopping=EarlyStopping(order_seed=3),
        )
    )
    assert run.checks[0].verdict in (Verdict.INVALID, Verdict.PASS)
    assert run.checks[1].verdict is Verdict.PASS
    asked = {(body["messages"][0]["content"]) for body in server.answered}
    assert not any("what is 30 +" in question and question.startswith("stumbling") for question in asked)


def test_writing_first_prompts_on_trial_changes_no_later_one(folder: Path) -> None:
    stumble_at(folder, 99)
    options = TaskOptions(include_path=str(folder))
    writer = RequestWriter(ModelSpec(base_url="http://localhost", model="m"))
    names = ("drawn", "drawing")  # from the module's own stream and Python's; examples from the sampler's

    def payloads(on_trial: bool) -> list[bytes]:
        tasks = load_tasks(names, options, {}).tasks
        random.seed(11)
        tasks["drawn"].get_config("doc_to_text").__globals__["own"].seed(12)
        if on_trial:
            try_first_prompts(tasks, dict.fromkeys(names, range(60)), writer, options)
        made = [sample for name, task in tasks.items() for sample in samples(name, task, writer, options)]
        return [request.payload for sample in made for request in sample.requests]

    plain = payloads(on_trial=False)
    assert payloads(on_trial=True) == plain
    assert len(set(plain)) == 120
