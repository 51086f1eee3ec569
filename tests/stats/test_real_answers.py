"""Verdicts on the recorded answers of four real models to GSM8K, where the full score is known."""

from __future__ import annotations

import json
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest

from assay.stats.many import decide_many
from assay.stats.paired import count_flips, mcnemar, newcombe_interval
from assay.stats.plans import SequentialPlan, margin_plan, threshold_plan
from assay.stats.sampling import permuted, random_order
from assay.stats.sequential import SequentialTest

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
RUNS = 40
MARGIN = 0.03

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def answers(model_outputs_dir: Path) -> dict[str, NDArray[np.float64]]:
    """Right (1) or wrong (0), by model, for the 1319 questions."""
    file = model_outputs_dir / "gsm8k" / "openai_example_model_solutions.jsonl"
    if not file.is_file():
        pytest.skip(f"the recorded answers are not there ({file})")
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {model: np.array([float(record[model]["is_correct"]) for record in records]) for model in MODELS}


def check(plan: SequentialPlan, scores: NDArray[np.float64], truth: bool) -> float:
    """Follow the plan in many orders; at most one may end wrong. Return the mean number of documents asked."""
    passed, documents = decide_many(plan, permuted(scores, RUNS, seed=17))
    assert (passed != truth).sum() <= 1
    test = SequentialTest(plan)
    for document in random_order(scores.size, seed=17):
        test.add(float(scores[document]))
    assert test.decision == ("pass" if truth else "fail")
    return float(documents.mean())


@pytest.mark.parametrize("points", [-10, -5, -2, 2, 5, 10])
@pytest.mark.parametrize("model", MODELS)
def test_thresholds_around_a_models_own_score(answers: dict[str, NDArray[np.float64]], model: str, points: int) -> None:
    scores = answers[model]
    threshold = float(scores.mean()) + points / 100
    documents = check(threshold_plan(scores.size, threshold, resolution=1), scores, truth=points < 0)
    assert documents <= {2: 1.0, 5: 0.6, 10: 0.25}[abs(points)] * scores.size


@pytest.mark.parametrize(("baseline", "candidate"), list(permutations(MODELS, 2)))
def test_every_model_against_every_other(
    answers: dict[str, NDArray[np.float64]], baseline: str, candidate: str
) -> None:
    before, after = answers[baseline], answers[candidate]
    difference = float((after - before).mean())
    documents = check(margin_plan(after.size, MARGIN, resolution=1), after - before, truth=difference >= -MARGIN)
    if abs(difference + MARGIN) > 0.05:
        assert documents <= 0.5 * after.size

    flips = count_flips(before, after)
    interval = newcombe_interval(flips)
    assert interval.low <= difference <= interval.high
    significant = mcnemar(flips.lost, flips.gained) < 0.05
    assert significant == (not interval.low <= 0 <= interval.high)


@pytest.mark.parametrize("model", MODELS)
def test_a_model_against_itself_passes_at_once(answers: dict[str, NDArray[np.float64]], model: str) -> None:
    unchanged = np.zeros_like(answers[model])
    assert check(margin_plan(unchanged.size, MARGIN, resolution=1), unchanged, truth=True) <= 0.16 * unchanged.size
