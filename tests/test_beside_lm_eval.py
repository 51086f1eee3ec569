"""Options and kinds of tasks by which runs differ: real lm-eval and Assay send and say the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import SpecificationError, UnsupportedTaskError
from assay.reports.html import write_report
from assay.rescoring.rescore import score
from assay.runs.compare import compare
from assay.runs.files import read_run
from assay.types import Check, EarlyStopping
from tests.beside_lm_eval import Scene, sample_lines
from tests.servers.scripted import ScriptedServer
from tests.small_tokenizer import write_small_tokenizer
from tests.tasks.chat_templates import TEMPLATES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_tokenizer(tmp_path_factory.mktemp("tokenizer"), chat_template=TEMPLATES["marks"])


@pytest.fixture
def scene(tokenizer: str, tmp_path: Path) -> Scene:
    return Scene(tokenizer, tmp_path)


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_chosen_documents(scene: Scene, endpoint: str) -> None:
    run = scene.run_both("drawing", endpoint=endpoint, samples={"drawing": (2, 3, 7, 11)})
    assert [line["doc_id"] for line in sample_lines(run, "drawing")] == [2, 3, 7, 11]
    assert run.results["n-samples"]["drawing"] == {"original": 12, "effective": 4}


def test_documents_chosen_of_one_task_leave_the_other_whole(scene: Scene) -> None:
    run = scene.run_both("drawing", "choosing", endpoint="completions", tokenizer=True, samples={"choosing": (1, 5)})
    assert [len(sample_lines(run, name)) for name in ("drawing", "choosing")] == [12, 2]


def test_chosen_documents_stopped_early_are_asked_as_in_full(scene: Scene) -> None:
    chosen: dict[str, tuple[int, ...]] = {"drawing": (1, 4, 5, 9, 10)}
    full = scene.run_both("drawing", samples=chosen)
    early = scene.run_assay(
        "drawing",
        samples=chosen,
        checks=(Check(metric="exact_match,none", min=0.99, alpha=0.3),),
        early_stopping=EarlyStopping(order_seed=3),
    )
    seen = {line["doc_id"]: line for line in sample_lines(full, "drawing")}
    asked = sample_lines(early, "drawing")
    assert asked == [seen[line["doc_id"]] for line in asked]
    assert asked


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0.25},
        {"limit": 3, "fewshot_seed": 5, "random_seed": 6, "numpy_seed": 7, "torch_seed": 8},
        {"limit": 3, "num_fewshot": 4, "gen_kwargs": {"temperature": 0.5}},
    ],
    ids=str,
)
def test_options(scene: Scene, options: dict[str, Any]) -> None:
    scene.run_both("drawing", **options)


@pytest.mark.parametrize("sends_tokens", [True, False])
def test_a_python_class_that_mixes_kinds_of_requests(scene: Scene, sends_tokens: bool) -> None:
    if sends_tokens:
        run = scene.run_both("mixing", endpoint="completions", tokenizer=True, num_fewshot=2)
        assert [score.n for score in run.scores] == [6, 6, 6]
    else:  # lm-eval counts the prompt's tokens with a tokenizer or not at all
        run = scene.run_assay("mixing", endpoint="completions")
        assert run.failures == ()
        assert {len(line["resps"]) for line in sample_lines(run, "mixing")} == {2}


def test_a_python_class_that_mixes_kinds_is_refused_on_chat(scene: Scene) -> None:
    with pytest.raises(UnsupportedTaskError, match="'mixing' is also scored by log-likelihood"):
        scene.run_assay("mixing")


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_a_python_class_that_changes_a_method(scene: Scene, endpoint: str) -> None:
    run = scene.run_both("configured", endpoint=endpoint, limit=3)
    assert "Please: " in json.dumps(sample_lines(run, "configured"))


def test_a_python_class_that_writes_plain_text_is_refused_on_chat(scene: Scene) -> None:
    with pytest.raises(UnsupportedTaskError, match=r"task 'plain' writes its prompts as plain text.*--completions"):
        scene.run_assay("drawing", "plain")


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_what_functions_change_in_a_document(scene: Scene, endpoint: str) -> None:
    run = scene.run_both("changing", endpoint=endpoint)
    lines = sample_lines(run, "changing")
    assert {line["as_asked"] for line in lines} == {0.0}
    assert [(line["doc"]["said"], line["target"]) for line in lines[:2]] == [(" 0, I think", "0!"), (" 8", "8!")]


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_what_functions_change_in_the_examples(scene: Scene, endpoint: str) -> None:
    run = scene.run_both("counting", endpoint=endpoint)
    assert "12. Q: What is 101" in json.dumps(sample_lines(run, "counting")[-1])
    check = Check(metric="exact_match,none", min=0.9, alpha=0.3)
    with pytest.raises(UnsupportedTaskError, match="'counting' changes its few-shot examples"):
        scene.run_assay("counting", endpoint=endpoint, checks=(check,), early_stopping=EarlyStopping())


def test_what_a_class_changes_in_documents_that_it_keeps(scene: Scene) -> None:
    run = scene.run_both("keeping", endpoint="completions", tokenizer=True)
    assert {line["doc"]["asked"] for line in sample_lines(run, "keeping")} == {1}


def test_an_empty_text_is_scored_without_a_question(scene: Scene) -> None:
    run = scene.run_both("gaps", endpoint="completions", tokenizer=True)
    assert [score.n for score in run.scores] == [5, 5, 5]
    assert score(run.results_file).differences == ()
    assert write_report(run.results_file).exists()
    early = scene.run_assay(
        "gaps",
        endpoint="completions",
        tokenizer=True,
        checks=(Check(metric="word_perplexity,none", max=1e9),),
        early_stopping=EarlyStopping(),
    )
    assert sample_lines(early, "gaps") == sample_lines(run, "gaps")


@pytest.mark.parametrize("task", ["lacking", "bypassing", "many_kinds"])
def test_scores_that_are_no_numbers(scene: Scene, task: str) -> None:
    run = scene.run_both(task)
    assert {score.n for score in run.scores} <= {12, 6}
    assert score(run.results_file).differences == ()
    recorded = read_run(run.results_file)
    compared = {change.metric for change in compare(recorded, recorded).changes}
    assert compared == ({"right,none"} if task == "lacking" else {"verdicts,none"} if task == "many_kinds" else set())
    if task == "bypassing":
        assert run.results["results"][task]["bypass,none"] == 999
        with pytest.raises(SpecificationError, match="'bypassing' has the metric bypass"):
            scene.run_assay(task, log_samples=False)


WAYS_TO_ASK: list[dict[str, Any]] = [
    {},
    {"endpoint": "completions"},
    {"endpoint": "completions", "tokenizer": True, "apply_chat_template": True},
]


@pytest.mark.parametrize("multiturn", [True, False])
@pytest.mark.parametrize("way", WAYS_TO_ASK, ids=str)
@pytest.mark.parametrize("task", ["drawing", "beginning"])
def test_conversations(scene: Scene, task: str, way: dict[str, Any], multiturn: bool) -> None:
    scene.run_both(task, **way, limit=3, fewshot_as_multiturn=multiturn, system_instruction="Be brief.")


@pytest.mark.parametrize("multiturn", [True, False])
def test_choices_in_conversations(scene: Scene, multiturn: bool) -> None:
    way = WAYS_TO_ASK[2]
    run = scene.run_both("choosing", **way, limit=3, fewshot_as_multiturn=multiturn, system_instruction="Be brief.")
    prompt = sample_lines(run, "choosing")[0]["arguments"]["gen_args_0"]["arg_0"]
    assert prompt.startswith("<|start|>system\nBe brief.")
    assert run.results["chat_template"] == TEMPLATES["marks"]
    assert run.results["chat_template_sha"] == hashlib.sha256(TEMPLATES["marks"].encode()).hexdigest()
    assert run.results["fewshot_as_multiturn"] is multiturn


@pytest.mark.parametrize("way", [{"tokenizer": True}, WAYS_TO_ASK[2]], ids=str)
def test_choices_before_one_ending(scene: Scene, way: dict[str, Any]) -> None:
    scene.run_both("placing", **{"endpoint": "completions", **way}, limit=3)


def test_conversations_as_text(scene: Scene) -> None:
    with ScriptedServer(answer=scene.answer, models=["imaginary"]) as server:
        scene.run_assay(
            "drawing", server=server, **WAYS_TO_ASK[2], limit=1, num_fewshot=0, model={"tokenized_requests": False}
        )
        assert [body["prompt"] for body in server.answered] == [
            "<|start|>system\nNumbers.\n\n<|end|>\n<|start|>user\nQ: What is 0 + 0?\nA:<|end|>\n<|start|>assistant\n"
        ]


def test_a_chat_template_needs_a_tokenizer(scene: Scene) -> None:
    with pytest.raises(SpecificationError, match="only with the model's tokenizer"):
        scene.run_assay("drawing", endpoint="completions", apply_chat_template=True)


def test_repeats_and_majority(scene: Scene) -> None:
    # One at a time, so that both give their repeats the answers in the same order.
    run = scene.run_both("often", model={"concurrency": 1})
    values = {score.metric: score.value for score in run.scores}
    assert len(set(values.values())) > 1
    assert values["exact_match,most"] != values["exact_match,first"]
    assert {len(line["resps"][0]) for line in sample_lines(run, "often")} == {3}


@pytest.mark.parametrize("names", [("pair",), ("inner",), ("outer",), ("inner", "choosing")], ids=",".join)
def test_groups_and_tags(scene: Scene, names: tuple[str, ...]) -> None:
    run = scene.run_both(*names, endpoint="completions", tokenizer=True)
    assert ("groups" in run.results) == ("pair" not in names)


def test_squad_2_by_its_own_task(scene: Scene, tmp_path: Path) -> None:
    rows = [
        {
            "id": str(n),
            "title": "Sums",
            "context": "Of numbers.",
            "question": f"What is {n} + {n * 7}?",
            "answers": {"text": [f"the {n * 8}"] if n % 4 else [], "answer_start": [0] if n % 4 else []},
        }
        for n in range(8)
    ]
    folder = tmp_path / "data" / "lighteval" / "squad_v2"
    folder.mkdir(parents=True)
    for split in ("train", "validation"):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = scene.run_assay("squadv2", endpoint="completions", tokenizer=True, data_dir=str(tmp_path / "data"))
    values = run.results["results"]["squadv2"]
    # The server is right about odd numbers; of the six that have an answer, four are odd.
    assert (values["exact,none"], values["HasAns_exact,none"]) == (50, pytest.approx(100 * 4 / 6))
    assert values["NoAns_exact,none"] == 0
    assert values["best_exact,none"] >= 50
