"""HELM's commands as calls from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import assay
import assay.helm
from tests.helm.running.runs import NAME, number_of, read, write_run
from tests.helm.running.test_local_runs import WordEngine
from tests.servers.scripted import ScriptedServer


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return write_run(tmp_path / "earlier" / NAME)


def served(server: ScriptedServer, **more: Any) -> assay.ModelSpec:
    return assay.ModelSpec(base_url=server.url, model="served", max_attempts=1, **more)


def test_a_run_is_answered_and_then_evaluated_again(entry: Path, tmp_path: Path) -> None:
    with ScriptedServer(answer=lambda body: f"a{number_of(body)}", models=["served"]) as server:
        done = assay.helm.run(entry, served(server), helm_name="owner/served", output_dir=tmp_path, suite="v1")
    assert done.folder == tmp_path / "runs/v1/orc:task=x,model=owner_served"
    assert (done.num_requests, done.failures, done.num_empty) == (6, {}, 0)
    done.raise_if_incomplete()
    (exact,) = [stat for stat in done.stats if stat.name.name == "exact_match" and stat.name.perturbation is None]
    assert exact.mean == 1
    (done.folder / "stats.json").unlink()
    again = assay.helm.evaluate(done.folder, ["exact_match"], assay.helm.MetricOptions(allow_fewer=True))
    assert again.folder == done.folder
    assert "exact_match" in {stat.name.name for stat in again.stats}
    assert assay.helm.read_stats(done.folder) == list(again.stats)


def test_requests_without_an_answer_are_raised_once_the_files_are_written(entry: Path, tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> str | dict[str, Any]:
        return {"error": {"message": "broken"}} if number_of(body) == 3 else f"a{number_of(body)}"

    with ScriptedServer(answer=answer, models=["served"]) as server:
        done = assay.helm.run(entry, served(server), output_dir=tmp_path)
    assert list(done.failures) == [3]
    assert read(done.folder, "stats.json")
    with pytest.raises(assay.SamplesFailedError, match="1 of 6 requests have no answer"):
        done.raise_if_incomplete()


def test_what_makes_no_sense_is_refused_by_the_library(entry: Path, tmp_path: Path) -> None:
    model = assay.ModelSpec(base_url="http://x", model="served")
    with pytest.raises(assay.SpecificationError, match="is a run directory"):
        assay.helm.run(entry, model, entry=assay.helm.EntryOptions(max_eval_instances=3), output_dir=tmp_path)
    with pytest.raises(assay.SpecificationError, match="cannot be the name of a directory"):
        assay.helm.run(entry, model, output_dir=tmp_path, suite="..")
    with pytest.raises(assay.SpecificationError, match="cannot be the name of a directory"):
        assay.helm.export(tmp_path, tmp_path, suite="a/b")
    for wrong in (
        lambda: assay.helm.MetricOptions(parallelism=0),
        lambda: assay.helm.EntryOptions(num_train_trials=0),
        lambda: assay.helm.LocalModel(path="x", batch_size=-1),
    ):
        with pytest.raises(assay.SpecificationError, match="must be at least 1"):
            wrong()
    (entry / "run_spec.json").unlink()
    with pytest.raises(assay.SpecificationError, match="which metrics"):
        assay.helm.evaluate(entry)


def test_an_engine_of_ones_own_answers_a_run(entry: Path, tmp_path: Path) -> None:
    done = assay.helm.run(entry, WordEngine(), helm_name="local/words", output_dir=tmp_path)
    assert (done.folder.name, done.failures) == ("orc:task=x,model=local_words", {})
    assert {stat.mean for stat in done.stats if stat.name.name == "exact_match"} == {1}
