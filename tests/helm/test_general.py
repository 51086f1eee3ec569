"""Programs written for HELM end as they do with HELM."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.errors import OutputError, SpecificationError
from assay.helm import (
    GeneratedOutput,
    MetricName,
    MetricSpec,
    Request,
    RequestResult,
    RequestState,
    RunSpec,
    ScenarioSpec,
    ScenarioState,
    Stat,
    StateFile,
    Token,
    asdict_without_nones,
    create_metric,
    run_entry,
    write,
)
from assay.helm.run_directory import RUN_SPEC, SCENARIO, SCENARIO_STATE
from assay.helm.stat_files import PER_INSTANCE_STATS, STATS, read_stats
from assay.helm.tokenization import EncoderService
from tests.helm.states import generation, result, state


def test_what_is_written_record_by_record_is_what_run_entry_writes(tmp_path: Path, tokenizer: EncoderService) -> None:
    run = state([generation(0, result("yes")), generation(1, result("no")), generation(2, None)])
    metric = MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": ["exact_match"]})
    spec = RunSpec("a-run", ScenarioSpec("x.Scenario", {"subject": None}), run.adapter_spec, [metric])
    evaluated = create_metric(metric).evaluate(run, tokenizer, "", parallelism=1)
    for name, record in ((RUN_SPEC, spec), (SCENARIO_STATE, run)):
        write(os.path.join(tmp_path, name), json.dumps(asdict_without_nones(record), indent=2))
    write(
        os.path.join(tmp_path, STATS),
        json.dumps([asdict_without_nones(stat) for stat in evaluated.aggregated_stats], indent=2),
    )
    write(
        os.path.join(tmp_path, PER_INSTANCE_STATS),
        json.dumps(list(map(asdict_without_nones, evaluated.per_instance_stats)), indent=2),
    )
    run_entry(spec, run, tmp_path / "ours", tokenizer)
    for name in (RUN_SPEC, SCENARIO_STATE, STATS, PER_INSTANCE_STATS):
        assert (tmp_path / name).read_bytes() == (tmp_path / "ours" / name).read_bytes(), name


def test_places_are_given_as_text_as_in_helm(tmp_path: Path) -> None:
    run = state([generation(0, result("yes"))])
    metric = MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": ["exact_match"]})
    spec = RunSpec("a-run", ScenarioSpec("x.Scenario"), run.adapter_spec, [metric])
    folder = os.path.join(tmp_path, "ours")
    write(os.path.join(tmp_path, SCENARIO), '{\n  "name": "orc"\n}')
    run_entry(spec, run, folder, scenario=os.path.join(tmp_path, SCENARIO))
    assert sorted(os.listdir(folder)) == sorted([PER_INSTANCE_STATS, RUN_SPEC, SCENARIO, SCENARIO_STATE, STATS])
    assert StateFile(os.path.join(folder, SCENARIO_STATE)).load() == run


def test_the_dictionary_is_the_callers_own() -> None:
    spec = MetricSpec("a.Metric", {"names": ["exact_match"]})
    given = asdict_without_nones(spec)
    given["args"]["names"].append("f1_score")
    assert spec.args == {"names": ["exact_match"]}


def test_records_are_replaced_as_dataclasses_are() -> None:
    asked = RequestState.from_builtins({**generation(0, None).to_builtins(), "a_key_of_tomorrow": 1})
    answered = replace(asked, result=result("yes"))
    assert answered.to_builtins() == {**asked.to_builtins(), "result": result("yes").to_builtins()}
    with pytest.raises(TypeError, match="nonesuch"):
        replace(asked, nonesuch=1)  # type: ignore[call-arg]
    run = state([asked])
    assert replace(run, request_states=[answered]).instances == run.instances


def test_records_are_dictionaries_as_dataclasses_are() -> None:
    stat = Stat(MetricName("score", split="test")).add(2)
    name = {"name": "score", "split": "test", "sub_split": None, "perturbation": None}
    moments = {"count": 1, "sum": 2, "sum_squared": 4, "min": 2, "max": 2, "mean": 2.0, "variance": 0.0, "stddev": 0.0}
    assert asdict(stat) == {"name": name, **moments}
    assert [field.name for field in fields(MetricName)] == list(name)


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    stat = Stat(MetricName("score")).add(np.float64(0.5)).add(np.float64(0.375))
    assert json.loads(json.dumps(asdict_without_nones(stat)))["mean"] == 0.4375


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / STATS, '["é", "🙂"]')
    with pytest.raises(OutputError, match="surrogates not allowed"):
        write(tmp_path / STATS, "\ud800")
    assert (tmp_path / STATS).read_text(encoding="utf-8") == '["é", "🙂"]'


def test_what_is_no_record_and_what_cannot_be_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match="expected one of HELM's records, but got dict"):
        asdict_without_nones({"name": "a"})  # type: ignore[arg-type]
    with pytest.raises(OutputError, match=r"absent/stats\.json cannot be written: No such file"):
        write(tmp_path / "absent" / STATS, "[]")


def test_what_numpy_computed_is_written_wherever_it_stands(tmp_path: Path) -> None:
    computed: Any = np.array([-0.5, -0.25, -0.75], np.float32)
    first, second, total = computed
    whole: Any = np.int64(3)
    output = GeneratedOutput("yes", total, [Token("a", first), Token("b", second)])
    answer = RequestResult(True, [], [output], False, np.float64(0.25), whole)
    run = state([generation(0, answer)])
    metric = MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": ["exact_match"]})
    spec = RunSpec("a-run", ScenarioSpec("x.Scenario"), run.adapter_spec, [metric])
    run_entry(spec, run, tmp_path)
    written = StateFile(tmp_path / SCENARIO_STATE).load()
    assert written.to_builtins() == json.loads(json.dumps(asdict_without_nones(run)))
    (completion,) = written.request_states[0].answer.completions
    assert (completion.logprob, completion.tokens[1].logprob) == (-0.75, -0.25)
    (logprob,) = [stat for stat in read_stats(tmp_path / STATS) if stat.name == MetricName("logprob", "test")]
    assert logprob.mean == -0.75


@pytest.mark.parametrize(
    ("value", "expected"), [(np.float32(0.5), 0.5), (np.int64(2), 2), (np.True_, 1), (True, 1), (10**300, 1e300)]
)
def test_a_number_is_counted_as_pythons(value: float, expected: float) -> None:
    for stat in (Stat(MetricName("score")).add(value), Stat.of(MetricName("score"), value)):
        assert (stat.sum, type(stat.sum)) == (expected, type(expected))
        assert Stat.from_json(stat.to_json()) == stat


def test_what_is_no_number_is_not_counted() -> None:
    with pytest.raises(TypeError, match="'1'"):
        Stat(MetricName("score")).add("1")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [iter, tuple])
def test_records_are_given_as_anything_that_gives_them(kind: Any, tmp_path: Path) -> None:
    states = [generation(number, result("yes")) for number in range(3)]
    run = ScenarioState(state([]).adapter_spec, kind(states))
    metric = MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": ["exact_match"]})
    spec = RunSpec("a-run", ScenarioSpec("x.Scenario"), run.adapter_spec, kind([metric]), groups=kind(["a", "b"]))
    assert run_entry(spec, run, tmp_path).num_requests == 3
    assert StateFile(tmp_path / SCENARIO_STATE).load().request_states == states
    written = RunSpec.from_json((tmp_path / RUN_SPEC).read_bytes())
    assert (written.metric_specs, written.groups) == ([metric], ["a", "b"])


def test_requests_and_instances_say_what_helms_say() -> None:
    request = Request(model="meta/opt-1.3b", model_deployment="huggingface/opt-1.3b")
    assert (request.model_host, request.model_engine) == ("huggingface", "opt-1.3b")
    instance = generation(0, None, golds=("yes", "no")).instance
    assert instance.first_correct_reference == instance.references[0]
    assert generation(0, None, golds=()).instance.first_correct_reference is None
