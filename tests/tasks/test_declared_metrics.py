"""What tasks declare is what they report once they are loaded, or is not known before."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.tasks.declared_metrics import declared_metrics
from assay.tasks.index import entry_from_file, task_index
from assay.tasks.library import load_tasks
from assay.tasks.metrics import expected_task_keys
from assay.types import TaskOptions

FOLDER = Path(__file__).parent.parent / "evaluation_tasks"
NAMES = [file.stem for file in sorted(FOLDER.glob("*.yaml"))]


@pytest.mark.parametrize("name", NAMES)
def test_declared_is_what_is_reported(name: str) -> None:
    declared = declared_metrics([entry_from_file(FOLDER / f"{name}.yaml")])
    if declared is not None:
        [task] = load_tasks([name], TaskOptions(include_path=str(FOLDER)), {}).tasks.values()
        assert declared == {name: expected_task_keys(task)}


def test_metrics_of_groups_classes_and_own_functions_are_not_known_before() -> None:
    index = task_index()
    for name in ("mmlu_pro", "squadv2", "humaneval", "ifeval"):
        assert declared_metrics([index.entry("gsm8k"), index.entry(name)]) is None


def test_filters_and_metrics_of_included_files_are() -> None:
    assert declared_metrics([task_index().entry("gsm8k_cot")]) == {
        "gsm8k_cot": ["exact_match,strict-match", "exact_match,flexible-extract"]
    }
