"""The real helm-summarize reads what is written here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from assay.helm import MetricSpec, RunSpec, ScenarioSpec, run_entry
from assay.helm.tokenization import EncoderService
from tests.helm.states import generation, result, state

SCHEMA = """\
metrics:
  - {name: exact_match, display_name: Exact match, description: EM, lower_is_better: false}
perturbations: []
metric_groups:
  - name: accuracy
    display_name: Accuracy
    metrics: [{name: "${main_name}", split: "${main_split}"}]
run_groups:
  - name: a_group
    display_name: A group
    description: d
    metric_groups: [accuracy]
    environment: {main_name: exact_match, main_split: test}
    taxonomy: {task: "?", what: "?", when: "?", who: "?", language: English}
"""


def test_helm_summarize_finds_our_numbers(tmp_path: Path, tokenizer: EncoderService) -> None:
    python = os.environ.get("ASSAY_HELM_PYTHON")
    if python is None:
        pytest.skip("ASSAY_HELM_PYTHON names no interpreter that has crfm-helm")
    run = state([generation(number, result("yes" if number else "no")) for number in range(4)])
    metric = MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": ["exact_match"]})
    spec = RunSpec("a_group:model=m_m", ScenarioSpec("x.Scenario"), run.adapter_spec, [metric], groups=["a_group"])
    suite = tmp_path / "runs" / "suite"
    run_entry(spec, run, suite / spec.name, tokenizer)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    summarize = [python, "-m", "helm.benchmark.presentation.summarize", "--suite", "suite", "-o", str(tmp_path)]
    schema = ["--schema-path", str(tmp_path / "schema.yaml")]
    subprocess.run([*summarize, *schema], check=True, capture_output=True, cwd=tmp_path)
    (table,) = json.loads((suite / "groups" / "a_group.json").read_bytes())
    assert [[cell["value"] for cell in row] for row in table["rows"]] == [["m/m", 0.75]]
