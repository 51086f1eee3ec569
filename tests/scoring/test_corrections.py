"""Known faults of lm-eval: what it says, what is right, and that both are told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from assay.cli.output import present
from assay.evaluation import Evaluation, evaluate
from assay.types import ModelSpec, Specification, TaskOptions
from tests.beside_lm_eval import TASKS, sample_lines
from tests.servers.echoing import Body
from tests.servers.scripted import ScriptedServer


def run(server: ScriptedServer, output_dir: Path, *tasks: str, model: Any = None, **options: Any) -> Evaluation:
    return evaluate(
        Specification(
            tasks=tasks,
            model=ModelSpec(base_url=server.url, model="m", **model or {}),
            options=TaskOptions(**{"include_path": str(TASKS), **options}),
            output_dir=str(output_dir),
        )
    )


def knows_the_right_choice(body: Body) -> str:
    found = re.search(r"(\([A-D]\)) right", body["messages"][-1]["content"])
    assert found
    return found[1]


def test_choices_are_scored_in_the_order_that_was_asked(tmp_path: Path) -> None:
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.openai_completions import LocalChatCompletion
    from lm_eval.tasks import TaskManager

    with ScriptedServer(answer=knows_the_right_choice, models=["m"]) as server:
        theirs = simple_evaluate(
            model=LocalChatCompletion(model="m", base_url=f"{server.url}/v1/chat/completions", num_concurrent=2),
            tasks=["shuffling"],
            task_manager=TaskManager(include_defaults=False, include_path=str(TASKS)),
            apply_chat_template=True,
            bootstrap_iters=0,
        )
        ours = run(server, tmp_path, "shuffling")
    assert theirs["results"]["shuffling"]["exact_match,none"] < 0.8
    assert ours.results["results"]["shuffling"]["exact_match,none"] == 1.0
    (correction,) = ours.corrections
    assert (correction.task, correction.values) == ("shuffling", {})
    assert "here both see the same documents" in correction.note
    assert json.loads(ours.results_file.read_text())["assay"]["corrections"] == [
        {"task": "shuffling", "note": correction.note, "values": {}}
    ]


def seeds_sent(server: ScriptedServer) -> set[tuple[int, ...]]:
    by_question: dict[str, list[int]] = {}
    for body in server.answered:
        by_question.setdefault(json.dumps(body["messages"]), []).append(body["seed"])
    return {tuple(sorted(seeds)) for seeds in by_question.values()}


@pytest.mark.parametrize(
    ("model", "gen_kwargs", "seeds"),
    [
        ({}, {"temperature": 0.5}, (1234, 1234, 1234)),
        ({"distinct_repeat_seeds": True}, {"temperature": 0.5}, (1234, 1235, 1236)),
        ({"distinct_repeat_seeds": True, "seed": 7}, {"temperature": 0.5}, (7, 8, 9)),
        ({"distinct_repeat_seeds": True}, {"temperature": 0.5, "seed": 3}, (3, 4, 5)),
    ],
    ids=str,
)
def test_seeds_of_repeats(
    tmp_path: Path, model: dict[str, Any], gen_kwargs: dict[str, Any], seeds: tuple[int, ...]
) -> None:
    with ScriptedServer(answer=lambda _: "8", models=["m"]) as server:
        done = run(server, tmp_path, "often", model=model, gen_kwargs=gen_kwargs)
        assert seeds_sent(server) == {seeds}
    (correction,) = done.corrections
    told = "a seed of its own" if model else "--distinct-repeat-seeds gives each its own"
    assert told in correction.note


def test_repeats_of_greedy_answers_are_meant_to_be_alike(tmp_path: Path) -> None:
    with ScriptedServer(answer=lambda _: "8", models=["m"]) as server:
        assert run(server, tmp_path, "often", gen_kwargs={"temperature": 0}).corrections == ()


@pytest.mark.parametrize("task", ["ifeval", "leaderboard_ifeval"])
def test_symbols_are_counted_that_lm_eval_takes_for_letters(
    tmp_path: Path, data_dir: Path, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys 1122 and 1129 want four "#" and fewer than three "!"."""
    pytest.importorskip("langdetect")
    pytest.importorskip("immutabledict")
    pytest.importorskip("nltk")
    answer = "#a #b #c #d " + "everyone's letters abcdefghijklmnopqrstuvwxyz " * 5
    with ScriptedServer(answer=lambda _: answer, models=["m"]) as server:
        done = run(server, tmp_path / "1", task, data_dir=str(data_dir), limit=25)
        again = run(server, tmp_path / "2", task, data_dir=str(data_dir), limit=25)
    assert sample_lines(done, task) == sample_lines(again, task)
    assert done.corrections == again.corrections
    (correction,) = done.corrections
    assert correction.note.startswith("key 1122, 1129: lm-eval counts a letter drawn at random in place of ! or #")
    by_key = {line["doc"]["key"]: line for line in sample_lines(done, task)}
    # By hand: what the other instructions of the two gave, and this one as it should be.
    expected: dict[str, list[bool]] = {"inst_level_strict_acc": [], "prompt_level_strict_acc": []}
    for key, line in by_key.items():
        verdicts = list(line["inst_level_strict_acc"])
        for place, name in enumerate(line["doc"]["instruction_id_list"]):
            if key in (1122, 1129) and name == "keywords:letter_frequency":
                settings = line["doc"]["kwargs"][place]
                enough = answer.count(settings["letter"]) >= settings["let_frequency"]
                verdicts[place] = enough == (settings["let_relation"] == "at least")
        expected["inst_level_strict_acc"] += verdicts
        expected["prompt_level_strict_acc"].append(all(verdicts))
    for metric, values in expected.items():
        assert correction.values[f"{metric},none"] == pytest.approx(sum(values) / len(values))
    present(done, as_json=False)
    shown = capsys.readouterr().out
    assert f"{task}: {correction.note}: " in shown
    assert f"inst_level_strict_acc,none {correction.values['inst_level_strict_acc,none']:.4f}" in shown
