"""A few cells of ``make triage-matrix``, on a task of the tests' own."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.diagnosis.run import triage
from assay.evaluation import evaluate
from benchmarks.triage.documents import KINDS, Kind, load_kind
from benchmarks.triage.faults import FAULTS
from benchmarks.triage.matrix import Bench, Cell, Judgement, Part, cells, faulty
from benchmarks.triage.model import HealthyModel
from benchmarks.triage.running import MODEL, run, specification
from tests.diagnosis.runs import TASKS
from tests.servers.scripted import ScriptedServer

SUMS = Kind(("sums",), "#### {}", True, lambda _, target: str(target).rpartition("#### ")[2])
TOLD = ("boxed", "all in reasoning", "server errors", "another model", "rubbish")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("matrix")
    return Bench.over(load_kind("gsm8k", SUMS, TASKS, 60), HealthyModel(seed=1, accuracy=0.75), folder)


def test_healthy_answers_score_what_the_model_knows(bench: Bench) -> None:
    known = [bench.model.is_right("sums", number) for number in bench.task.samples["sums"]]

    assert bench.score == pytest.approx(sum(known) / len(known))


@pytest.mark.parametrize("form", TOLD)
def test_planted_faults_are_told_with_and_without_a_baseline(bench: Bench, form: str) -> None:
    assert [each.judgement for each in bench.results(Cell(form, "gsm8k", 1))] == [Judgement.RIGHT] * 2


def test_healthy_models_raise_no_alarm(bench: Bench) -> None:
    pairs = list(bench.healthy_pairs())

    assert len(pairs) == 28
    assert [pair.headline for pair in pairs if pair.is_false_alarm] == []


@pytest.mark.parametrize("form", ["boxed", "all in reasoning", "limit too small"])
def test_a_run_in_process_equals_one_over_http(bench: Bench, form: str, tmp_path: Path) -> None:
    sent: dict[bytes, bytes] = {}
    script = faulty(bench.task, bench.model, Cell(form, "gsm8k", 1))
    inside = run(tmp_path / "inside", bench.task, script, sent)
    replies = {_key(json.loads(request)): json.loads(reply) for request, reply in sent.items()}

    with ScriptedServer(answer=lambda body: replies[_key(body)], models=[MODEL]) as server:
        over_http = evaluate(specification(tmp_path / "http", bench.task, server.url)).results_file

    assert over_http is not None
    assert _samples(over_http) == _samples(inside)
    found, expected = triage(over_http, bench.baseline), triage(inside, bench.baseline)
    assert msgspec.structs.replace(found, run="") == msgspec.structs.replace(expected, run="")


def test_the_parts_share_no_cell_and_cover_the_matrix() -> None:
    development, held_out = (set(cells(part)) for part in Part)

    assert not development & held_out
    assert len(FAULTS) >= 40
    assert {cell.task for cell in development | held_out} == set(KINDS)
    assert {cell.form for cell in development | held_out} == {fault.name for fault in FAULTS}
    assert not [cell for cell in development if cell.fault.held_out or KINDS[cell.task].held_out]


def test_a_sampled_matrix_is_the_same_part_every_time() -> None:
    whole, drawn = cells(Part.DEVELOPMENT), cells(Part.DEVELOPMENT, sample=40)

    assert len(drawn) == 40
    assert drawn == cells(Part.DEVELOPMENT, sample=40)
    assert set(drawn) < set(whole)
    assert len({cell.task for cell in drawn}) > 3


def _key(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)


def _samples(results_file: Path) -> list[str]:
    (file,) = results_file.parent.glob("samples_*.jsonl")
    return file.read_text("utf-8").splitlines()
