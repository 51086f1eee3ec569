from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from assay.errors import FileFormatError, MissingDependencyError, OutputError
from assay.helm import MetricSpec, PerturbationDescription, RequestState, RunSpec, ScenarioSpec, ScenarioState
from assay.helm.evaluation import evaluate, plan_metrics
from assay.helm.metrics.base import Metric
from assay.helm.metrics.registry import create_metric
from assay.helm.run_directory import RUN_SPEC, SCENARIO, SCENARIO_STATE, metrics_of, read_run_spec, run_entry
from assay.helm.scoring import pool
from assay.helm.stat_files import PER_INSTANCE_STATS, STATS, read_stats
from assay.helm.state_file import StateFile
from assay.helm.tokenization import EncoderService
from tests.helm.states import KeptRecords, generation, result, state
from tests.helm.statistics_equality import assert_same_statistics

BASIC = "helm.benchmark.metrics.basic_metrics."
FILES = (RUN_SPEC, SCENARIO, SCENARIO_STATE, STATS, PER_INSTANCE_STATS)
TYPOS = PerturbationDescription("typos", robustness=True)


def run_spec(run: ScenarioState, *metrics: MetricSpec) -> RunSpec:
    return RunSpec("a-run", ScenarioSpec("x.Scenario"), run.adapter_spec, list(metrics) or [exact_match()])


def exact_match() -> MetricSpec:
    return MetricSpec(f"{BASIC}BasicGenerationMetric", {"names": ["exact_match"]})


@pytest.mark.oracle
def test_the_five_files_are_helms(oracle: Path, oracle_tokenizer: EncoderService, tmp_path: Path) -> None:
    evaluated = run_entry(
        read_run_spec(oracle / RUN_SPEC),
        StateFile(oracle / SCENARIO_STATE),
        tmp_path,
        oracle_tokenizer,
        scenario=oracle / SCENARIO,
        first_metric_only=oracle.name.startswith("flex_"),
    )
    assert not evaluated.unscored
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    for name in (RUN_SPEC, SCENARIO, SCENARIO_STATE):
        assert (tmp_path / name).read_bytes() == (oracle / name).read_bytes()
    for name in (STATS, PER_INSTANCE_STATS):
        ours, theirs = (json.loads((folder / name).read_bytes()) for folder in (tmp_path, oracle))
        assert_same_statistics(ours, theirs)
        for folder, statistics in ((tmp_path, ours), (oracle, theirs)):
            assert (folder / name).read_bytes() == json.dumps(statistics, indent=2).encode(), "of the same form"


def test_a_state_in_memory_gives_the_same_files_as_on_disk(tmp_path: Path, tokenizer: EncoderService) -> None:
    run = state([generation(number, result("yes" if number % 3 else "no")) for number in range(200)])
    run_entry(run_spec(run), run, tmp_path / "memory", tokenizer)
    run_entry(run_spec(run), StateFile(tmp_path / "memory" / SCENARIO_STATE), tmp_path / "disk", tokenizer)
    for name in (RUN_SPEC, SCENARIO_STATE, STATS, PER_INSTANCE_STATS):
        assert (tmp_path / "disk" / name).read_bytes() == (tmp_path / "memory" / name).read_bytes()


def test_requests_in_any_order_are_evaluated_in_helms(tmp_path: Path, tokenizer: EncoderService) -> None:
    """HELM goes trial by trial, instances in the order of their first request."""
    requests = [generation(number, result("yes"), trial=trial) for number in (2, 0, 1) for trial in (0, 1)]
    run = state(requests, num_train_trials=2)
    run_entry(run_spec(run), run, tmp_path, tokenizer)
    on_disk = run_entry(run_spec(run), StateFile(tmp_path / SCENARIO_STATE), tmp_path / "again", tokenizer)
    records = json.loads((tmp_path / PER_INSTANCE_STATS).read_bytes())
    assert [(record["train_trial_index"], record["instance_id"]) for record in records] == [
        (trial, f"id{number}") for trial in (0, 1) for number in (2, 0, 1)
    ]
    assert on_disk.num_requests == 6
    assert (tmp_path / "again" / PER_INSTANCE_STATS).read_bytes() == (tmp_path / PER_INSTANCE_STATS).read_bytes()


def test_worst_cases_over_perturbations(tokenizer: EncoderService) -> None:
    run = state(
        [
            generation(0, result("yes")),
            generation(0, result("no"), perturbation=TYPOS),
            generation(1, result("no")),
            generation(1, result("yes"), perturbation=TYPOS),
            generation(2, result("yes")),
            generation(2, result("yes"), perturbation=TYPOS),
        ]
    )
    stats = create_metric(exact_match()).evaluate(run, tokenizer).aggregated_stats
    values = {
        (stat.name.perturbation.name, stat.name.perturbation.computed_on) if stat.name.perturbation else None: stat.mean
        for stat in stats
        if stat.name.name == "exact_match"
    }
    assert values == {
        None: pytest.approx(2 / 3),
        ("typos", "perturbed"): pytest.approx(2 / 3),
        ("robustness", "worst"): pytest.approx(1 / 3),
        ("fairness", "worst"): pytest.approx(2 / 3),
        ("typos", "original"): pytest.approx(2 / 3),
        ("typos", "worst"): pytest.approx(1 / 3),
    }


def test_a_missing_result_is_named_and_not_scored(tokenizer: EncoderService) -> None:
    run = state([generation(0, result("yes")), generation(1, None), generation(2, result())])
    metric_result = create_metric(exact_match()).evaluate(run, tokenizer)
    assert metric_result.unscored == [f"instance id{number}, trial 0: a request has no result" for number in (1, 2)]
    assert [stats.instance_id for stats in metric_result.per_instance_stats] == ["id0"]
    exact = next(stat for stat in metric_result.aggregated_stats if stat.name.name == "exact_match")
    assert exact.mean == 1.0


def test_an_instance_without_a_right_answer_is_named_and_not_scored(tokenizer: EncoderService) -> None:
    run = state([generation(0, result("yes"))])
    value = run.request_states[0].to_builtins()
    value["instance"]["references"][0]["tags"] = []
    run = state([type(run.request_states[0]).from_builtins(value)])
    assert create_metric(exact_match()).evaluate(run, tokenizer).unscored == [
        "instance id0, trial 0: no reference is tagged correct"
    ]


def test_a_request_that_occurs_twice_is_refused(tmp_path: Path, tokenizer: EncoderService) -> None:
    run = state([generation(0, result("yes")), generation(1, result("yes")), generation(0, result("no"))])
    with pytest.raises(FileFormatError, match="a request state occurs twice: instance id0, trial 0"):
        run_entry(run_spec(run), run, tmp_path, tokenizer)
    assert not list(tmp_path.iterdir())


def test_damage_leaves_the_old_files_alone(tmp_path: Path, tokenizer: EncoderService) -> None:
    run = state([generation(number, result("yes")) for number in range(3)])
    run_entry(run_spec(run), run, tmp_path, tokenizer)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    cut = tmp_path / "cut.json"
    cut.write_bytes(before[SCENARIO_STATE][:-200])
    with pytest.raises(FileFormatError, match="was cut off at byte"):
        run_entry(run_spec(run), StateFile(cut), tmp_path, tokenizer)
    cut.unlink()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_a_killed_evaluation_left_is_cleared_up_some_day(tmp_path: Path, tokenizer: EncoderService) -> None:
    old, new = tmp_path / ".evaluating-old", tmp_path / ".evaluating-new"
    for draft in (old, new):
        draft.mkdir()
        (draft / STATS).write_text("[")
    os.utime(old, (0, 0))
    run = state([generation(0, result("yes"))])
    run_entry(run_spec(run), run, tmp_path, tokenizer)
    assert new.exists()
    assert not old.exists()


def test_an_empty_run_gives_empty_statistics(tmp_path: Path, tokenizer: EncoderService) -> None:
    run = state([])
    assert run_entry(run_spec(run), run, tmp_path, tokenizer).stats == []
    assert (tmp_path / PER_INSTANCE_STATS).read_text() == "[]"
    assert (tmp_path / STATS).read_text() == "[]"


def test_statistics_that_are_no_number_are_left_out(tmp_path: Path, tokenizer: EncoderService) -> None:
    run = state([generation(0, result("yes", logprob=float("nan"))), generation(1, result("yes"))])
    run_entry(run_spec(run), run, tmp_path, tokenizer)
    run_entry(run_spec(run), StateFile(tmp_path / SCENARIO_STATE), tmp_path / "again", tokenizer)
    for folder in (tmp_path, tmp_path / "again"):
        names = [stat.name.name for stat in read_stats(folder / STATS)]
        assert "exact_match" in names
        assert "logprob" not in names
        records = json.loads((folder / PER_INSTANCE_STATS).read_bytes())
        assert ["logprob" in [stat["name"]["name"] for stat in record["stats"]] for record in records] == [False, True]


def test_processes_change_no_byte(tmp_path: Path, tokenizer: EncoderService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_SECONDS_BEFORE_WORKERS", -1.0)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    run = state(
        [generation(number, result(f"yes {number}", "no"), ["yes", "3"]) for number in range(300)], num_outputs=2
    )
    metric = MetricSpec(f"{BASIC}BasicGenerationMetric", {"names": ["exact_match", "f1_score", "iou_set_match"]})
    for parallelism in (1, 3):
        run_entry(run_spec(run, metric), run, tmp_path / str(parallelism), tokenizer, parallelism=parallelism)
    for name in (STATS, PER_INSTANCE_STATS):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "3" / name).read_bytes()


def test_duplicate_names_are_found(tmp_path: Path, tokenizer: EncoderService) -> None:
    run = state([generation(0, result("yes"))])
    evaluated = run_entry(run_spec(run, exact_match(), exact_match()), run, tmp_path, tokenizer)
    assert "exact_match" in evaluated.duplicate_names


def test_only_the_first_metric_if_asked(tokenizer: EncoderService) -> None:
    run = state([])
    spec = run_spec(run, exact_match(), MetricSpec(f"{BASIC}InstancesPerSplitMetric"))
    assert len(metrics_of(spec)) == 2
    assert len(metrics_of(spec, first_only=True)) == 1


def test_without_a_tokenizer_what_needs_none_is_computed() -> None:
    run = state([generation(0, result("yes"))])
    metrics = [create_metric(exact_match()), create_metric(MetricSpec(f"{BASIC}BasicReferenceMetric"))]
    planned = plan_metrics(metrics, run, has_tokenizer=False)
    assert planned.left_out == [
        "BasicGenerationMetric: num_prompt_tokens and what depends on it is left out: it needs --tokenizer hf:PATH"
    ]
    sinks = [KeptRecords() for _ in planned.metrics]
    names = [stat.name.name for stat in evaluate(planned.metrics, run, None, sinks).stats]
    assert "exact_match" in names
    assert "num_prompt_tokens" not in names


def test_a_metric_of_references_needs_a_tokenizer() -> None:
    run = state([], method="multiple_choice_separate_original")
    metric = create_metric(MetricSpec(f"{BASIC}BasicReferenceMetric"))
    assert isinstance(metric, Metric)
    assert plan_metrics([metric], run, has_tokenizer=False).left_out == [
        "BasicReferenceMetric is left out: it needs --tokenizer hf:PATH"
    ]
    with pytest.raises(MissingDependencyError, match="BasicReferenceMetric needs a tokenizer and was given none"):
        metric.evaluate(run, None)


def test_a_file_in_the_way_is_named(tmp_path: Path, tokenizer: EncoderService) -> None:
    (tmp_path / "out").write_text("")
    run = state([])
    with pytest.raises(OutputError, match="out cannot be written"):
        run_entry(run_spec(run), run, tmp_path / "out", tokenizer)


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('"logprob": -0.5', f'"logprob": {-(10**400)}', "logprob: expected"),
        ('"num_train_trials": 1', f'"num_train_trials": {10**400}', "num_train_trials: expected"),
        ('"request_time": 0.25', f'"request_time": {10**400}', "request_time: expected"),
    ],
)
def test_numbers_that_nothing_can_be_computed_with_are_named(tmp_path: Path, old: str, new: str, where: str) -> None:
    path = tmp_path / SCENARIO_STATE
    text = state([generation(0, result("yes"))]).to_json().decode()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(FileFormatError, match=where):
        StateFile(path).load()


def test_a_batch_of_none_has_no_time_for_each(tokenizer: EncoderService) -> None:
    value = generation(0, result("yes")).to_builtins()
    value["result"] |= {"batch_size": 0, "batch_request_time": 1.0}
    run = state([RequestState.from_builtins(value)])
    names = [stat.name.name for stat in create_metric(exact_match()).evaluate(run, tokenizer).aggregated_stats]
    assert "inference_runtime" in names
    assert "inference_denoised_runtime" not in names


def test_a_broken_scenario_is_not_copied(tmp_path: Path, tokenizer: EncoderService) -> None:
    run = state([generation(0, result("yes"))])
    broken = tmp_path / SCENARIO
    broken.write_text('{"name": "a",')
    with pytest.raises(FileFormatError, match=r"scenario\.json is incomplete"):
        run_entry(run_spec(run), run, tmp_path / "out", tokenizer, scenario=broken)
    assert not (tmp_path / "out").exists()
