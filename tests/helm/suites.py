"""A suite as HELM's tools read it, written by Assay and summarized by the real helm-summarize."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from assay.helm import MetricSpec, RunSpec, Scenario, ScenarioSpec, run_entry
from assay.helm.tokenization import EncoderService
from tests.helm.states import generation, result, state

SUITE = "suite"
RUN = "a_group:model=m_m"
_SCHEMA = """\
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


def helm_python() -> str:
    """The interpreter that has crfm-helm; skips where none is named."""
    python = os.environ.get("ASSAY_HELM_PYTHON")
    if python is None:
        pytest.skip("ASSAY_HELM_PYTHON names no interpreter that has crfm-helm")
    return str(Path(python).absolute())


def write_summarized_suite(folder: Path, tokenizer: EncoderService) -> Path:
    """Write one run with an exact match of 0.75, and have it summarized; gives the suite's directory."""
    run = state([generation(number, result("yes" if number else "no")) for number in range(4)])
    metric = MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": ["exact_match"]})
    spec = RunSpec(RUN, ScenarioSpec("x.Scenario"), run.adapter_spec, [metric], groups=["a_group"])
    suite = folder / "runs" / SUITE
    scenario = Scenario("a_scenario", "what it asks", ["a tag"])
    run_entry(spec, run, suite / spec.name, tokenizer, scenario=scenario)
    (folder / "schema.yaml").write_text(_SCHEMA)
    summarize = [helm_python(), "-m", "helm.benchmark.presentation.summarize", "--suite", SUITE, "-o", str(folder)]
    schema = ["--schema-path", str(folder / "schema.yaml")]
    subprocess.run([*summarize, *schema], check=True, capture_output=True, cwd=folder)
    return suite
