"""A run of lm-eval's tasks as HELM's run directories: lm-eval's values, every answer, readable by HELM's tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.cli.helm import helm
from assay.errors import (
    AssayError,
    FewerStatisticsError,
    FileFormatError,
    NothingMeasuredError,
    UnsupportedTaskError,
)
from assay.evaluation import Evaluation, evaluate
from assay.helm import RunSpec, StateFile
from assay.helm.lm_eval_runs import _stat_names, export
from assay.helm.stat_files import read_stats
from assay.runs.samples import results_file_of
from assay.types import ModelSpec, Specification, TaskOptions
from tests.cli.test_run import assay
from tests.result_files import read_samples, write_run
from tests.servers.scripted import Fault, ScriptedServer, reply_with

TASKS = Path(__file__).parents[1] / "evaluation_tasks"


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """One answer in three is right."""
    numbers = [int(word) for word in body["messages"][-1]["content"].split() if word.isdigit()]
    reply = reply_with(f"The answer is {sum(numbers) + numbers[0] % 3}", body)
    reply["choices"][0]["message"]["reasoning_content"] = f"thinking of {numbers[0]}"
    return reply


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    with ScriptedServer(answer=answer, models=["owner/scripted"], faults=[Fault("http_400", fraction=0.1)]) as server:
        return evaluate(
            Specification(
                tasks=("counting", "naming"),
                model=ModelSpec(base_url=server.url, model="owner/scripted", concurrency=8),
                options=TaskOptions(include_path=str(TASKS), num_fewshot=1),
                output_dir=str(tmp_path_factory.mktemp("run")),
            )
        )


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_bytes())


def test_each_task_becomes_a_run_with_lm_evals_values(tmp_path: Path, run: Evaluation) -> None:
    written = export(run.results_file, tmp_path)
    assert list(written) == [tmp_path / f"runs/assay/{task}:model=owner_scripted" for task in ("counting", "naming")]
    for folder, task in zip(written, ("counting", "naming"), strict=True):
        spec = RunSpec.from_json((folder / "run_spec.json").read_bytes())
        assert (spec.name, spec.groups) == (folder.name, [task])
        assert (spec.adapter_spec.method, spec.adapter_spec.model) == ("generation", "owner/scripted")
        assert spec.adapter_spec.max_train_instances == 1
        stats = {stat.name.name: stat for stat in read_stats(folder / "stats.json")}
        assert stats["exact_match"].mean == run.results["results"][task]["exact_match,get-answer"]
        assert stats["exact_match"].count == 1
        assert read(folder, "scenario.json")["name"] == task


def test_a_task_that_would_lose_statistics_keeps_no_other_from_being_written(tmp_path: Path, run: Evaluation) -> None:
    counting, naming = export(run.results_file, tmp_path)
    more = read(counting, "stats.json")
    more.append({**more[0], "name": {"name": "a_score_of_yesterday"}})
    (counting / "stats.json").write_text(json.dumps(more))
    shutil.rmtree(naming)
    with pytest.raises(FewerStatisticsError, match=r"lose a_score_of_yesterday.*; 1 of 2 are written$"):
        export(run.results_file, tmp_path)
    assert read(counting, "stats.json") == more
    assert (naming / "stats.json").exists()
    export(run.results_file, tmp_path, allow_fewer=True)
    assert len(read(counting, "stats.json")) < len(more)


def test_a_score_that_is_no_number_is_no_statistic() -> None:
    values = {"a,none": float("nan"), "b,none": 1.0, "c,none": float("inf"), "d,none": "N/A", "b_stderr,none": 0.1}
    assert _stat_names(values) == {("b", "none"): "b"}


def test_every_scored_sample_is_there_with_its_answer(tmp_path: Path, run: Evaluation) -> None:
    folder, _ = export(run.results_file, tmp_path)
    samples = [one for one in read_samples(run.results_file) if one.task == "counting" and one.failure is None]
    assert 40 < len(samples) < 60, "some failed, and have no place in HELM's files"
    state = StateFile(folder / "scenario_state.json").load()
    records = read(folder, "per_instance_stats.json")
    assert (folder / "scenario_state.json").read_bytes() == state.to_json()
    for sample, one, record in zip(samples, state.request_states, records, strict=True):
        (said,) = sample.answers
        assert one.instance.id == record["instance_id"] == f"id{sample.doc_id}"
        assert one.instance.all_correct_references[0].output.text == sample.target
        assert one.request.messages is not None
        assert one.request.messages[-1]["content"] == one.instance.input.text
        assert len(one.request.messages) == 3, "the example has turns of its own"
        assert one.request.stop_sequences == ["\n"]
        (completion,) = one.answer.completions
        assert completion.text == said.text
        assert completion.thinking == {"text": f"thinking of {sample.doc_id}"}
        assert one.answer.request_time == said.latency
        values = {stat["name"]["name"]: stat["mean"] for stat in record["stats"]}
        assert values["exact_match"] == sample.filters["get-answer"].metrics["exact_match"]
        assert values["num_output_tokens"] == said.completion_tokens


def test_choices_are_references_with_their_log_probabilities(tmp_path: Path, oracles_dir: Path) -> None:
    results_file = results_file_of(oracles_dir / "lm_eval/loglik_arc_challenge")
    (folder,) = export(results_file, tmp_path)
    state = StateFile(folder / "scenario_state.json").load()
    assert state.adapter_spec.method == "multiple_choice_separate_original"
    records = {one["instance_id"]: one["stats"] for one in read(folder, "per_instance_stats.json")}
    for sample in read_samples(results_file):
        mine = [one for one in state.request_states if one.instance.id == f"id{sample.doc_id}"]
        assert [one.answer.completions[0].logprob for one in mine] == [one.logprob for one in sample.answers]
        assert [one.request.prompt for one in mine] == [prompt.text for prompt in sample.prompts]
        values = {stat["name"]["name"]: stat["mean"] for stat in records[f"id{sample.doc_id}"]}
        right = [number for number, one in enumerate(mine[0].instance.references) if one.is_correct]
        assert len(right) == 1
        assert values["acc"] == (values["predicted_index"] == right[0])
    stats = {stat.name.name: stat.mean for stat in read_stats(folder / "stats.json")}
    expected = json.loads(results_file.read_bytes())["results"]["arc_challenge"]
    assert (stats["acc"], stats["acc_norm"]) == (expected["acc,none"], expected["acc_norm,none"])


def test_filters_are_named_where_there_are_several(tmp_path: Path, oracles_dir: Path) -> None:
    results_file = results_file_of(oracles_dir / "lm_eval/chat_gsm8k_cot")
    (folder,) = export(results_file, tmp_path, "v1")
    assert folder.parent == tmp_path / "runs/v1"
    stats = {stat.name.name: stat.mean for stat in read_stats(folder / "stats.json")}
    expected = json.loads(results_file.read_bytes())["results"]["gsm8k_cot"]
    for key in ("exact_match,strict-match", "exact_match,flexible-extract"):
        assert stats[key] == expected[key]


def test_a_run_whose_prompts_are_not_kept_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, {"some": [1, 0]})
    with pytest.raises(NothingMeasuredError, match="nothing can be written for HELM"):
        export(tmp_path, tmp_path / "helm")


@pytest.mark.parametrize(
    ("file", "right", "wrong", "error", "message"),
    [
        ("samples", r'"until": [^\]]*\]', '"until": 1.5', FileFormatError, "document 0: cannot be read as a sample"),
        ("results", r'"exact_match,', '"exact_match ', NothingMeasuredError, "no sample with a score"),
    ],
)
def test_damage_is_one_clear_line(
    tmp_path: Path, oracles_dir: Path, file: str, right: str, wrong: str, error: type[AssayError], message: str
) -> None:
    shutil.copytree(oracles_dir / "lm_eval/chat_gsm8k", tmp_path / "run")
    (damaged,) = (tmp_path / "run").glob(f"**/{file}_*.json*")
    text, count = re.subn(right, wrong, damaged.read_text())
    assert count
    damaged.write_text(text)
    with pytest.raises(error, match=message):
        export(tmp_path / "run", tmp_path / "helm")


def test_assay_run_writes_them_on_the_way(tmp_path: Path) -> None:
    with ScriptedServer(answer=lambda _: "The answer is 8", models=["scripted"]) as server:
        where = ["--base-url", server.url, "--model", "scripted", "--include-path", str(TASKS), "--no-report"]
        ran = assay("run", "counting", *where, "--limit", "10", "--helm-dir", "helm", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    (folder,) = (tmp_path / "helm/runs/assay").iterdir()
    assert f"1 run for HELM in {folder.parent.relative_to(tmp_path)}" in ran.stderr
    again = assay("helm", "export", "results", "--output-dir", "again", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    for name in ("run_spec", "scenario", "scenario_state", "stats", "per_instance_stats"):
        file = f"runs/assay/{folder.name}/{name}.json"
        assert (tmp_path / "helm" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_where_helms_runs_cannot_be_written_is_found_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file")
    (tmp_path / "helm/runs/assay").mkdir(parents=True)
    (tmp_path / "helm/runs/assay/counting:model=local_scripted").write_text("a file")
    with ScriptedServer(answer=lambda _: "The answer is 8", models=["scripted"]) as server:
        where = ["--base-url", server.url, "--model", "scripted", "--include-path", str(TASKS), "--no-report"]
        ran = assay("run", "counting", *where, "--limit", "10", "--helm-dir", "blocked", cwd=tmp_path)
        assert (ran.returncode, server.count) == (2, 0)
        assert "blocked is not a directory" in ran.stderr
        ran = assay("run", "counting", *where, "--limit", "10", "--helm-dir", "helm", cwd=tmp_path)
    assert ran.returncode == 0, "the run itself is done"
    assert "the run was not completely written for HELM" in ran.stderr


def test_helm_summarize_shows_them(tmp_path: Path, run: Evaluation) -> None:
    python = os.environ.get("ASSAY_HELM_PYTHON")
    if python is None:
        pytest.skip("ASSAY_HELM_PYTHON names no interpreter that has crfm-helm")
    folder, _ = export(run.results_file, tmp_path)
    summarize = [python, "-m", "helm.benchmark.presentation.summarize", "--suite", "assay", "-o", str(tmp_path)]
    schema = ["--schema-path", str(tmp_path / "schema_assay.yaml")]
    subprocess.run([*summarize, *schema], check=True, capture_output=True, cwd=tmp_path)
    for task in ("counting", "naming"):
        (table,) = read(tmp_path / "runs/assay/groups", f"{task}.json")
        value = run.results["results"][task]["exact_match,get-answer"]
        assert [[cell["value"] for cell in row] for row in table["rows"]] == [["owner/scripted", value]]
    shown = read(folder, "display_predictions.json")
    assert [one["predicted_text"] for one in shown] == [
        one.answer.completions[0].text for one in StateFile(folder / "scenario_state.json")
    ]


def test_lm_evals_scores_are_not_computed_anew_but_helms_are(tmp_path: Path, run: Evaluation) -> None:
    folder, _ = export(run.results_file, tmp_path)
    for command in (["evaluate", folder], ["run", folder, "--base-url", "http://127.0.0.1:9", "--model", "m"]):
        with pytest.raises(UnsupportedTaskError, match=r"a task of lm-eval.*assay run .*--metric NAME --output-dir"):
            helm.main(args=[str(word) for word in command], standalone_mode=False)
    words = ["evaluate", folder, "--metric", "exact_match", "--output-dir", tmp_path / "scored"]
    helm.main(args=[str(word) for word in words], standalone_mode=False)
    assert "exact_match" in {stat.name.name for stat in read_stats(tmp_path / "scored/stats.json")}


def test_names_of_models_and_tasks_are_none_that_lead_elsewhere(tmp_path: Path, run: Evaluation) -> None:
    results_file = Path(shutil.copytree(run.results_file.parent, tmp_path / "run")) / run.results_file.name
    results = json.loads(results_file.read_bytes())
    results_file.write_text(json.dumps({**results, "model_name": "../a\0b\nc"}))
    assert [folder.name for folder in export(results_file, tmp_path)] == [
        "counting:model=.._a_b_c",
        "naming:model=.._a_b_c",
    ]
