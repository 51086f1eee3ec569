"""Functions of the tasks in this folder; as in lm-eval's humaneval, the metric is loaded when this is imported."""

from typing import Any

import datasets
import evaluate

code_eval = evaluate.load("code_eval")
code_eval.compute(references=["assert one() == 1"], predictions=[["def one(): return 2"]], k=[1])


def rows(**_: Any) -> dict[str, datasets.Dataset]:
    """Ten questions: the function f must give n."""
    documents = [{"n": n, "test": f"assert f() == {n}"} for n in range(10)]
    return {"test": datasets.Dataset.from_list(documents)}


def build(resps: list[list[str]], docs: Any) -> list[list[str]]:
    """The answer's text is the body."""
    return [[f"def f():\n    {text}" for text in texts] for texts in resps]


def pass_at_k(references: list[str], predictions: list[list[str]], k: list[int]) -> Any:
    """Give pass@k."""
    return code_eval.compute(references=references, predictions=predictions, k=k)[0]
