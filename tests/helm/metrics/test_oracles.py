"""Every statistic of every recorded run of the real HELM, to the last bit that does not depend on the machine."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from assay.helm.installed_helm import InstalledHelmMetric
from assay.helm.metrics.base import Metric
from assay.helm.metrics.registry import create_metric
from assay.helm.run_spec import MetricSpec, RunSpec
from assay.helm.state_file import StateFile
from assay.helm.tokenization import EncoderService
from tests.helm.statistics_equality import assert_same_statistics

pytestmark = pytest.mark.oracle


def test_all_statistics_are_equal(oracle: Path, oracle_tokenizer: EncoderService) -> None:
    state = StateFile(oracle / "scenario_state.json").load()
    results = [metric.evaluate(state, oracle_tokenizer) for metric in _metrics(oracle)]
    assert not [line for result in results for line in result.unscored]

    per_instance = [stats.to_builtins() for result in results for stats in result.per_instance_stats]
    assert_same_statistics(per_instance, json.loads((oracle / "per_instance_stats.json").read_bytes()))

    aggregated = [stat for result in results for stat in result.aggregated_stats if not math.isnan(stat.sum)]
    expected = json.loads((oracle / "stats.json").read_bytes())
    assert_same_statistics([stat.to_builtins() for stat in aggregated], expected)


def _metrics(oracle: Path) -> list[Metric | InstalledHelmMetric]:
    specs = RunSpec.from_json((oracle / "run_spec.json").read_bytes()).metric_specs
    if oracle.name.startswith("full_"):  # HELM 0.2's runner always adds it
        specs = [*specs, MetricSpec("helm.benchmark.metrics.tokens_metric.TokensMetric")]
    return [create_metric(spec) for spec in specs]
