"""The in-process engine beside lm-eval's own ``hf`` on the same weights: value by value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import assay
from tests.inprocess.small_models import NEEDED, write_small_model

pytest.importorskip("torch", reason=NEEDED)
pytest.importorskip("transformers", reason=NEEDED)
pytest.importorskip("accelerate", reason="lm-eval's hf needs accelerate")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TASKS = Path(__file__).parents[1] / "loglikelihood_tasks"
ALL = ("choosing", "continuing", "reading", "writing")


def of_lm_eval(path: str, **options: Any) -> dict[str, Any]:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    arguments = {"pretrained": path, "dtype": "float32"}
    done: dict[str, Any] = simple_evaluate(
        model="hf",
        model_args=arguments,
        tasks=list(ALL),
        batch_size=4,
        device="cpu",
        task_manager=TaskManager(include_path=str(TASKS)),
        bootstrap_iters=0,
        **options,
    )
    return done


def of_assay(path: str, folder: Path, **options: Any) -> assay.Evaluation:
    return assay.evaluate(
        assay.Specification(
            tasks=ALL,
            model=assay.LocalModel(f"hf:{path}", dtype="float32", device="cpu", batch_size=5),
            options=assay.TaskOptions(include_path=str(TASKS), **options),
            output_dir=str(folder),
            triage=False,
        )
    )


def responses(lines: list[dict[str, Any]]) -> dict[int, Any]:
    return {line["doc_id"]: line["resps"] for line in lines}


def assert_alike(ours: Any, theirs: Any) -> None:
    """Equal; numbers within 1e-4, or for sums of hundreds a millionth, as float32 resolves them."""
    if isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_alike(one, other)
    elif isinstance(theirs, float):
        assert float(ours) == pytest.approx(theirs, rel=1e-6, abs=1e-4)
    else:
        assert str(ours) == str(theirs)


@pytest.mark.parametrize("kind", ["llama", "opt"])
@pytest.mark.parametrize("max_length", [128, 60])
def test_every_value_is_lm_evals(tmp_path: Path, kind: str, max_length: int) -> None:
    path = write_small_model(tmp_path / kind, kind, max_length=max_length)
    theirs = of_lm_eval(path)
    ours = of_assay(path, tmp_path / "out")
    assert not ours.failures
    for task in ALL:
        file = next(ours.results_file.parent.glob(f"samples_{task}_*.jsonl"))
        mine, other = responses(read_plain(file)), responses(theirs["samples"][task])
        assert mine.keys() == other.keys()
        for number, expected in other.items():
            assert_alike(mine[number], expected)
        for metric, value in theirs["results"][task].items():
            if "," in metric and "stderr" not in metric:
                assert ours.results["results"][task][metric] == pytest.approx(value, rel=1e-5), (task, metric)


def read_plain(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
