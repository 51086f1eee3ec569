"""Stands in for the hub's metric of this name, in lm-eval's process, so that nothing is fetched.

Programs run in processes of their own and nothing else keeps them in: only for answers that are known.
"""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from typing import Any

import datasets
import evaluate

_SECONDS = 3.0


class CodeEval(evaluate.Metric):  # type: ignore[misc]
    """pass@k of programs, each of which is a candidate with the reference after it."""

    def _info(self) -> Any:
        features = {"predictions": datasets.Sequence(datasets.Value("string")), "references": datasets.Value("string")}
        return evaluate.MetricInfo(
            description="pass@k", citation="", inputs_description="", features=datasets.Features(features)
        )

    def _compute(self, predictions: list[list[str]], references: list[str], k: list[int]) -> Any:
        counted = [
            (len(candidates), sum(_passes(f"{candidate}\n{tests}") for candidate in candidates))
            for candidates, tests in zip(predictions, references, strict=True)
        ]
        sizes = [size for size in k if all(n >= size for n, _ in counted)]
        means = {f"pass@{size}": sum(_pass_at(size, n, c) for n, c in counted) / len(counted) for size in sizes}
        return means, {}


@functools.cache
def _passes(program: str) -> bool:
    try:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _pass_at(k: int, n: int, correct: int) -> float:
    """The chance that one of `k` candidates, drawn from `n`, is among the `correct` (arXiv 2107.03374, equation 1)."""
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)
