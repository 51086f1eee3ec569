"""Metrics that tasks would fetch from the hub: the copies' values, and the refusal of those that there are none of."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from assay.errors import MissingDependencyError
from assay.tasks.code_eval import CodeEval
from assay.tasks.patches.hub_copies import F1, Accuracy, Rouge
from tests.small_tasks import Call, MakeTask


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("there is no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


# -- refusal ----------------------------------------------------------------------------------------------------------

REFUSED = r"^task 'small': scoring needs the metric 'bertscore', which lm-eval fetches .* Assay has no copy of it$"

ASKING = {
    "when it is imported": "import evaluate\nbert = evaluate.load('bertscore')\n",
    "by another name": "from evaluate import load as get\nbert = get('bertscore', keep_in_memory=True)\n",
    "and puts the error in other words": (
        "import evaluate\ntry:\n    evaluate.load('bertscore')\n"
        "except Exception as e:\n    raise RuntimeError('oh') from e\n"
    ),
}


@pytest.mark.parametrize("how", ASKING)
def test_a_task_that_asks_for_a_metric_which_is_not_here(make_task: MakeTask, how: str) -> None:
    python = ASKING[how] + "def own(items): return 0\n"
    with pytest.raises(MissingDependencyError, match=REFUSED):
        make_task(python, metric_list=[{"metric": "exact_match", "aggregation": Call("own")}])


def test_a_metric_named_in_yaml(make_task: MakeTask) -> None:
    with pytest.raises(MissingDependencyError, match=REFUSED):
        make_task(metric_list=[{"metric": "bertscore", "aggregation": "mean", "higher_is_better": True}])
    metric = {"metric": "accuracy", "hf_evaluate": True, "aggregation": "mean", "higher_is_better": True}
    task = make_task(metric_list=[metric])
    assert task.process_results({"q": "", "a": "4", "n": 0}, ["4"]) == {"accuracy": 1.0}


def test_metrics_asked_for_later_are_served(make_task: MakeTask) -> None:
    python = "import evaluate\ndef own(items):\n    metric = evaluate.load('f1')\n"
    python += "    return metric.compute(predictions=[1], references=[1])['f1']\n"
    task = make_task(python, metric_list=[{"metric": "exact_match", "aggregation": Call("own")}])
    assert task.aggregation()["exact_match"]([]) == 1.0


# -- values -----------------------------------------------------------------------------------------------------------


def test_code_eval_gives_what_the_hubs_gives() -> None:
    """The example of the metric's own page, and its layout."""
    estimates, results = CodeEval().compute(
        references=["assert add(2,3)==5", "assert add(1,1)==2"],
        predictions=[
            ["def add(a,b): return a*b", "def add(a, b): return a+b"],
            ["def add(a, b): return a+b", "import os; os._exit(0)"],
        ],
        k=[1, 2, 5],
    )
    assert estimates == {"pass@1": 0.5, "pass@2": 1.0}
    assert results[0] == [
        (0, {"task_id": 0, "passed": False, "result": "failed: ", "completion_id": 0}),
        (1, {"task_id": 0, "passed": True, "result": "passed", "completion_id": 1}),
    ]
    assert [told["result"] for _, told in results[1]] == ["passed", "timed out"]


@pytest.mark.parametrize(
    ("n", "right", "k", "expected"), [(5, 1, 1, 0.2), (5, 2, 2, 0.7), (5, 4, 2, 1.0), (5, 0, 3, 0.0)]
)
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(n: int, right: int, k: int, expected: float) -> None:
    candidates = ["pass"] * right + ["raise"] * (n - right)
    estimates, _ = CodeEval().compute(references=[""], predictions=[candidates], k=k)
    assert estimates[f"pass@{k}"] == pytest.approx(expected)


def test_labels() -> None:
    given: dict[str, Any] = {"references": [0, 1, 0, 1, 0], "predictions": [0, 0, 1, 1, 0]}
    assert F1().compute(**given) == {"f1": 0.5}
    assert F1().compute(**given, average=None)["f1"] == pytest.approx([2 / 3, 0.5])
    assert Accuracy().compute(**given) == {"accuracy": 0.6}
    assert Accuracy().compute(references=["1"], predictions=["1"]) == {"accuracy": 1.0}


def test_rouge() -> None:
    pytest.importorskip("rouge_score")
    texts: dict[str, Any] = {
        "predictions": ["hello there", "general kenobi"],
        "references": ["hello there", "general kenobi"],
    }
    assert Rouge().compute(**texts) == {"rouge1": 1.0, "rouge2": 1.0, "rougeL": 1.0, "rougeLsum": 1.0}
    several: dict[str, Any] = {"predictions": ["a b c d"], "references": [["a x", "a b y y"]]}
    assert Rouge().compute(**several, rouge_types=["rouge1"]) == {"rouge1": 0.5}
    apart = Rouge().compute(
        predictions=["a b", "a,b"],
        references=["a b", "a b"],
        use_aggregator=False,
        tokenizer=str.split,
        rouge_types=["rouge1"],
    )
    assert apart == {"rouge1": [1.0, 0.0]}
    mixed: dict[str, Any] = {"predictions": [f"a b {n}" for n in range(20)], "references": ["a b 1 2 3"] * 20}
    assert Rouge().compute(**mixed) == Rouge().compute(**mixed)
