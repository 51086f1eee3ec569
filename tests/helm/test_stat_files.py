"""Statistics that exist are not replaced by fewer, from Python as from the shell."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.errors import OutputError
from assay.helm import MetricSpec, RequestState, RunSpec, ScenarioSpec, run_entry, stat_files
from assay.helm.run_directory import SCENARIO_STATE
from assay.helm.stat_files import PER_INSTANCE_STATS, STATS, lost_statistics
from tests.helm.states import generation, result, state

BASIC = "helm.benchmark.metrics.basic_metrics."
SCORES = MetricSpec(f"{BASIC}BasicGenerationMetric", {"names": ["exact_match", "prefix_exact_match"]})
SIZE = MetricSpec(f"{BASIC}InstancesPerSplitMetric")
F1 = MetricSpec("helm.benchmark.metrics.classification_metrics.MultipleChoiceClassificationMetric")


def write(folder: Path, requests: Sequence[RequestState], *metrics: MetricSpec, **options: Any) -> None:
    run = state(requests, num_train_trials=2)
    spec = RunSpec("a-run", ScenarioSpec("x.Scenario"), run.adapter_spec, list(metrics) or [SCORES, SIZE])
    run_entry(spec, run, folder, **options)


WHOLE = [generation(number, result("yes"), trial=trial) for trial in range(2) for number in range(4)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("requests", "metrics", "lost"),
    [
        ([], (), "exact_match|num_references"),
        ([generation(number, None, trial=trial) for trial in range(2) for number in range(4)], (), "num_references"),
        ([one for one in WHOLE if one.instance.id in ("id0", "id1")], (), r"4 instances \(the new ones have 2"),
        (WHOLE[:4], (), r"over 2 trials \(the new one has 1"),
        ([*WHOLE[:7], generation(3, None, trial=1)], (), r"8 instances \(the new ones have 7"),
        (WHOLE, (SCORES,), r"num_instances \(it has"),
        (WHOLE, (SIZE,), r"num_references \(it has"),
    ],
)
def test_more_is_not_replaced(
    tmp_path: Path, requests: list[RequestState], metrics: tuple[MetricSpec, ...], lost: str
) -> None:
    write(tmp_path, WHOLE)
    before = contents(tmp_path)
    with pytest.raises(OutputError, match=lost) as refusal:
        write(tmp_path, requests, *metrics)
    assert "allow_fewer=True" in str(refusal.value)
    assert contents(tmp_path) == before
    write(tmp_path, requests, *metrics, allow_fewer=True)
    assert contents(tmp_path) != before


def test_fewer_instances_are_noticed_without_statistics_of_each(tmp_path: Path) -> None:
    write(tmp_path, WHOLE, F1, SIZE)
    with pytest.raises(OutputError, match=r"statistics of 4 instances \(the new ones have 2"):
        write(tmp_path, [one for one in WHOLE if one.instance.id in ("id0", "id1")], F1, SIZE)


def test_as_many_or_more_are_replaced(tmp_path: Path) -> None:
    write(tmp_path, WHOLE[:3], SCORES)
    write(tmp_path, [generation(number, result("no")) for number in range(3)], SCORES)
    write(tmp_path, WHOLE)
    assert json.loads((tmp_path / SCENARIO_STATE).read_bytes())["request_states"][7]


def test_a_run_may_get_better(tmp_path: Path) -> None:
    """Where every answer is right there is nothing to fit, and no coefficient."""
    write(tmp_path, [generation(number, result("yes" if number else "no")) for number in range(4)], SCORES)
    assert "platt_coef" in (tmp_path / STATS).read_text()
    write(tmp_path, WHOLE[:4], SCORES)


@pytest.mark.parametrize("text", ["", " \n", "[]", "[\n]"])
def test_nothing_is_replaced_by_anything(tmp_path: Path, text: str) -> None:
    for name in (STATS, PER_INSTANCE_STATS):
        (tmp_path / name).write_text(text)
    write(tmp_path, [])


@pytest.mark.parametrize(
    ("name", "text"), [(STATS, "[{"), (STATS, "{}"), (PER_INSTANCE_STATS, "[3,"), (PER_INSTANCE_STATS, '"a"')]
)
def test_what_cannot_be_read_is_not_replaced_unasked(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(OutputError, match=f"would lose statistics that cannot be counted: .*{name}"):
        write(tmp_path, WHOLE)
    assert (tmp_path / name).read_text() == text
    write(tmp_path, WHOLE, allow_fewer=True)


@pytest.mark.parametrize("chunk", [30, 64, 1 << 20])
@pytest.mark.parametrize("indent", [2, None])
def test_instances_are_counted_in_any_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write(old, WHOLE)
    write(new, WHOLE[:4], allow_fewer=True)
    for folder in (old, new):
        path = folder / PER_INSTANCE_STATS
        path.write_text(json.dumps(json.loads(path.read_bytes()), indent=indent))
        (folder / STATS).unlink()
    monkeypatch.setattr(stat_files, "_CHUNK", chunk)
    assert lost_statistics(old, new) == "the statistics of 8 instances (the new ones have 4)"
    assert lost_statistics(new, old) is None
    assert lost_statistics(old, old) is None


def test_odd_names_are_compared_too(tmp_path: Path) -> None:
    stat = {"name": {"name": "a", "novel": [1]}, "count": 1, "sum": 1, "sum_squared": 1, "mean": 1}
    (tmp_path / STATS).write_text(json.dumps([stat]))
    with pytest.raises(OutputError, match=r"lose a \(it has"):
        write(tmp_path, WHOLE)


@pytest.mark.parametrize("name", [STATS, PER_INSTANCE_STATS, SCENARIO_STATE])
@pytest.mark.parametrize("allow_fewer", [True, False])
def test_a_directory_in_the_way_keeps_every_file_as_it_was(tmp_path: Path, name: str, allow_fewer: bool) -> None:
    write(tmp_path, WHOLE)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(OutputError, match=f"{name} is a directory, but a file"):
        write(tmp_path, WHOLE[:4], SCORES, allow_fewer=allow_fewer)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / STATS)
    with pytest.raises(OutputError, match=f"cannot be counted: .*{STATS} is not a file"):
        write(tmp_path, WHOLE)
