"""A small run directory to be answered, and what reads an answered one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from assay.cli.helm import helm
from assay.helm import AdapterSpec, MetricSpec, Request, RunSpec, ScenarioSpec, ScenarioState
from assay.helm.run_directory import RUN_SPEC, SCENARIO, SCENARIO_STATE
from tests.helm.states import generation, result

BASIC = "helm.benchmark.metrics.basic_metrics."
NAME = "orc:task=x,model=m_m"


def write_run(folder: Path, count: int = 6, **request: Any) -> Path:
    """A run of so many questions with results that are to be replaced."""
    requests = {"max_tokens": 5, "temperature": 0.0, "stop_sequences": ["\n"], **request}
    states = [generation(number, result("old"), golds=[f"a{number}"]) for number in range(count)]
    states = [
        msgspec.structs.replace(one, request=msgspec.structs.replace(one.request, **requests), prompt_truncated=False)
        for one in states
    ]
    spec = AdapterSpec(
        method="generation", model="m/m", model_deployment="m/m", num_outputs=requests.get("num_completions", 1)
    )
    metrics = [MetricSpec(f"{BASIC}BasicGenerationMetric", {"names": ["exact_match"]})]
    folder.mkdir(parents=True, exist_ok=True)
    run_spec = RunSpec(NAME, ScenarioSpec("x.Scenario"), spec, metrics, groups=["orc"])
    (folder / RUN_SPEC).write_bytes(run_spec.to_json())
    (folder / SCENARIO).write_text('{\n  "name": "orc"\n}')
    (folder / SCENARIO_STATE).write_bytes(ScenarioState(spec, states).to_json())
    return folder


def number_of(request: Request | dict[str, Any]) -> int:
    """Which question a request, or a server's body, is about."""
    if isinstance(request, Request):
        text = request.prompt
    else:
        text = request["prompt"] if "prompt" in request else request["messages"][0]["content"]
    return int(text.removeprefix("question ").removesuffix(":"))


def run_command(what: Path | str, *options: str | Path) -> None:
    """``assay helm run``; its errors are raised."""
    helm.main(["run", str(what), *map(str, options)], standalone_mode=False)


def read(folder: Path, name: str) -> Any:
    """A file of a run directory."""
    return json.loads((folder / name).read_bytes())


def stat(folder: Path, name: str) -> float:
    """A statistic's mean over the test split."""
    (mean,) = [one["mean"] for one in read(folder, "stats.json") if one["name"] == {"name": name, "split": "test"}]
    return float(mean)
