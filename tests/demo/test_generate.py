"""The demo's task: its rows, and that lm-eval can load it from anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.demo import TASK, TASK_FOLDER, demo_specification
from assay.demo.generate import TEST_ROWS, generate_splits, write_splits
from assay.demo.server import DemoServer


def test_committed_rows_are_what_the_generator_writes(tmp_path: Path) -> None:
    write_splits(tmp_path)
    for split in ("train", "test"):
        assert (TASK_FOLDER / f"{split}.jsonl").read_bytes() == (tmp_path / f"{split}.jsonl").read_bytes()


def test_another_seed_draws_other_rows() -> None:
    assert generate_splits(1) != generate_splits(2)


def test_questions_are_distinct_and_in_one_split_only() -> None:
    splits = generate_splits()
    questions = [row["question"] for rows in splits.values() for row in rows]
    assert len(set(questions)) == len(questions)
    assert len(splits["test"]) == sum(TEST_ROWS.values()) == 100
    assert {row["kind"] for row in splits["train"]} == set(TEST_ROWS)


def test_answers_to_number_questions_are_right() -> None:
    for row in generate_splits()["test"]:
        numbers = [int(word) for word in row["question"].replace(",", "").replace("?", "").split() if word.isdigit()]
        if row["kind"] == "sum":
            assert sum(numbers) == int(row["answer"])
        if row["kind"] == "sequence":
            assert numbers[-1] + 1 == int(row["answer"])


def test_lm_eval_loads_the_task_from_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval.tasks import TaskManager

    monkeypatch.chdir(tmp_path)
    loaded = TaskManager(include_path=str(TASK_FOLDER), include_defaults=False).load([TASK])
    task = loaded["tasks"][TASK]
    rows = [json.loads(line) for line in (TASK_FOLDER / "test.jsonl").read_text().splitlines()]
    assert list(task.eval_docs) == rows
    assert len(list(task.fewshot_docs())) == task.config.num_fewshot


@pytest.mark.parametrize(
    ("text", "score"), [("7", 1), (" 3 + 4 = 7.", 1), ("It is 7", 1), ("17", 0), ("seven", 0), ("…", 0), ("", 0)]
)
def test_the_last_word_or_number_is_the_answer(text: str, score: int) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.tasks import TaskManager

    task = TaskManager(include_path=str(TASK_FOLDER), include_defaults=False).load([TASK])["tasks"][TASK]
    doc = {"kind": "sum", "question": "What is 3 + 4?", "answer": "7"}
    request = Instance(request_type="generate_until", doc=doc, arguments=("", {}), idx=0)
    request.resps = [text]
    task._instances = [request]
    task.apply_filters()
    assert task.process_results(doc, [request.filtered_resps["get-answer"]]) == {"exact_match": score}


def test_the_specification_asks_the_demo_server_for_the_demo_task(tmp_path: Path) -> None:
    server = DemoServer(tmp_path / "log", slots=3)
    server.base_url = "http://127.0.0.1:1"
    specification = demo_specification(server, tmp_path)
    assert specification.tasks == (TASK,)
    assert specification.model.base_url == server.base_url
    assert specification.model.model == server.model
    assert specification.model.concurrency == 3
    assert [check.metric for check in specification.checks] == ["exact_match,get-answer"]
