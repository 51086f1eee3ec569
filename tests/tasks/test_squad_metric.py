"""SQuAD 2.0's metric gives the values of its published script, as transformers 4.46 carries it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.tasks.patches.squad_metric import SquadV2

RECORDED = json.loads(Path(__file__).with_name("squad_v2.json").read_text())


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{len(case['references'])} questions")
def test_values_are_the_published_scripts(case: dict[str, Any]) -> None:
    expected = case.pop("expected")
    assert SquadV2().compute(**case) == pytest.approx(expected, rel=1e-12)


def test_by_hand() -> None:
    found = SquadV2().compute(
        predictions=[
            {"id": "1", "prediction_text": "the Black cat!", "no_answer_probability": 0.1},
            {"id": "2", "prediction_text": "a dog", "no_answer_probability": 0.9},
        ],
        references=[
            {"id": "1", "answers": {"text": ["A cat", "black dog"]}},
            {"id": "2", "answers": {"text": []}},
        ],
    )
    assert (found["exact"], found["HasAns_exact"], found["NoAns_exact"]) == (0, 0, 0)
    assert found["HasAns_f1"] == pytest.approx(100 * 2 / 3)
    # Trusting nothing above 0.1: the first answer counts, the second becomes none, which is right.
    assert (found["best_f1"], found["best_f1_thresh"]) == (pytest.approx(100 * (2 / 3 + 1) / 2), 0.1)
    assert (found["best_exact"], found["best_exact_thresh"]) == (50, 0.0)
