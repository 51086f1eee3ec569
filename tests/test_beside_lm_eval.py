"""Options and kinds of tasks by which runs differ: real lm-eval and Assay send and say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.evaluation import evaluate
from assay.types import Check, EarlyStopping, ModelSpec, Specification, TaskOptions
from tests.beside_lm_eval import TASKS, Scene, sample_lines
from tests.servers.scripted import ScriptedServer
from tests.small_tokenizer import write_small_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_tokenizer(tmp_path_factory.mktemp("tokenizer"))


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
    with ScriptedServer(answer=scene.answer, models=["imaginary"]) as server:
        early = evaluate(
            Specification(
                tasks=("drawing",),
                model=ModelSpec(base_url=server.url, model="imaginary"),
                options=TaskOptions(include_path=str(TASKS), samples=chosen),
                checks=(Check(metric="exact_match,none", min=0.99, alpha=0.3),),
                early_stopping=EarlyStopping(order_seed=3),
                output_dir=str(scene.output_dir / "early"),
            )
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
