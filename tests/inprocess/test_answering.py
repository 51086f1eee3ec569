"""Runs answered by an engine in this process, whatever the engine is: no PyTorch is needed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import RunInterrupted, SpecificationError
from assay.inprocess.engine import Scored, ScoredPrompt
from assay.types import EarlyStopping, ModelSpec, Specification, TaskOptions
from tests.inprocess.own_engine import OwnEngine

TASKS = Path(__file__).parents[1] / "loglikelihood_tasks"
ALL = ("choosing", "continuing", "reading", "writing")


def specification(tmp_path: Path, tasks: tuple[str, ...] = ALL, **changes: Any) -> Specification:
    return Specification(
        tasks=tasks,
        model=assay.LocalModel("mine", batch_size=8),
        options=TaskOptions(include_path=str(TASKS)),
        output_dir=str(tmp_path / "results"),
        triage=False,
        **changes,
    )


def scores(evaluation: assay.Evaluation) -> dict[str, Any]:
    scored: dict[str, Any] = evaluation.results["results"]
    return scored


class Told(assay.Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def noted(self, remark: str) -> None:
        self.lines.append(remark)


def test_an_engine_of_ones_own_answers_a_run_of_every_kind_of_request(tmp_path: Path) -> None:
    engine = OwnEngine(tmp_path)
    done = assay.evaluate(specification(tmp_path), engine=engine)
    assert not done.failures
    assert {score.task for score in done.scores} == set(ALL)
    assert max(map(len, engine.batches)) == 8
    assert done.results["config"]["model"] == "hf"


def test_a_context_comes_with_all_its_choices_in_one_batch(tmp_path: Path) -> None:
    engine = OwnEngine(tmp_path)
    assay.evaluate(specification(tmp_path, ("choosing",)), engine=engine)
    batches = [{prompt.context for prompt in batch if isinstance(prompt, ScoredPrompt)} for batch in engine.batches]
    of_questions = [context for contexts in batches for context in contexts if len(context) > 1]
    assert len(of_questions) == len(set(of_questions)) == 12


def test_a_batch_too_large_for_memory_costs_no_answer_and_is_told(tmp_path: Path) -> None:
    whole = assay.evaluate(specification(tmp_path / "a"), engine=OwnEngine(tmp_path / "a"))
    told = Told()
    small = OwnEngine(tmp_path / "b", fits=3)
    halved = assay.evaluate(specification(tmp_path / "b"), told, engine=small)
    assert not halved.failures
    assert scores(halved) == scores(whole)
    assert [line for line in told.lines if "does not fit into memory; the run goes on with batches of 4" in line]
    assert max(map(len, small.batches)) <= 3


def test_one_request_too_large_for_memory_is_a_failure_and_not_a_wrong_answer(tmp_path: Path) -> None:
    done = assay.evaluate(specification(tmp_path, ("writing",)), engine=OwnEngine(tmp_path, fits=0))
    assert len(done.failures) == 12
    assert "does not fit into memory" in done.failures[0].message
    assert done.exit_code == 4


class Failing(OwnEngine):
    def score(self, prompts: Any) -> list[Scored]:
        raise ValueError("a kernel of one's own is wrong")


def test_what_an_engine_raises_is_a_failure_of_its_requests(tmp_path: Path) -> None:
    done = assay.evaluate(specification(tmp_path, ("choosing", "writing")), engine=Failing(tmp_path))
    assert {failed.task for failed in done.failures} == {"choosing"}
    assert "ValueError: a kernel of one's own is wrong" in done.failures[0].message


class Infinite(OwnEngine):
    def score(self, prompts: Any) -> list[Scored]:
        return [Scored(float("nan"), is_greedy=False) for _ in prompts]


def test_a_log_probability_that_is_no_number_is_a_failure(tmp_path: Path) -> None:
    done = assay.evaluate(specification(tmp_path, ("continuing",)), engine=Infinite(tmp_path))
    assert len(done.failures) == 12
    assert "log-probability of nan" in done.failures[0].message


class Interrupted(OwnEngine):
    """Is stopped from outside after its second batch."""

    def _take(self, batch: Any) -> None:
        if len(self.batches) == 2:
            raise RunInterrupted("stopped")
        super()._take(batch)


def test_an_interrupted_run_asks_only_what_it_lacks(tmp_path: Path) -> None:
    first = Interrupted(tmp_path / "a")
    with pytest.raises(RunInterrupted):
        assay.evaluate(specification(tmp_path, ("choosing",)), engine=first)
    second = OwnEngine(tmp_path / "a")
    resumed = assay.evaluate(specification(tmp_path, ("choosing",)), engine=second)
    whole = assay.evaluate(specification(tmp_path / "b", ("choosing",)), engine=OwnEngine(tmp_path / "b"))
    asked = sum(map(len, second.batches))
    assert 0 < asked < 96
    assert asked + sum(map(len, first.batches)) == 96
    assert scores(resumed) == scores(whole)


def test_other_weights_are_another_run(tmp_path: Path) -> None:
    first = Interrupted(tmp_path / "a")
    with pytest.raises(RunInterrupted):
        assay.evaluate(specification(tmp_path, ("choosing",)), engine=first)
    second = OwnEngine(tmp_path / "a")
    second.identity = {"weights": "others"}
    assay.evaluate(specification(tmp_path, ("choosing",)), engine=second)
    assert sum(map(len, second.batches)) == 96


def test_it_stops_early_when_the_checks_are_decided(tmp_path: Path) -> None:
    checks = (assay.Check(metric="acc,none", min=0.0, task="choosing"),)
    done = assay.evaluate(
        specification(tmp_path, ("choosing",), checks=checks, early_stopping=EarlyStopping()),
        engine=OwnEngine(tmp_path),
    )
    assert done.verdict is assay.Verdict.PASS


def test_it_works_in_an_event_loop_of_the_callers(tmp_path: Path) -> None:
    done = asyncio.run(assay.evaluate_async(specification(tmp_path, ("writing",)), engine=OwnEngine(tmp_path)))
    assert not done.failures


def test_an_engine_beside_a_servers_address_is_refused(tmp_path: Path) -> None:
    server = ModelSpec(base_url="http://127.0.0.1:1", model="m", endpoint="completions")
    spec = Specification(tasks=("writing",), model=server, options=TaskOptions(include_path=str(TASKS)))
    with pytest.raises(SpecificationError, match=r"name the model by assay\.LocalModel"):
        assay.evaluate(spec, engine=OwnEngine(tmp_path))


def test_more_tokens_than_the_context_has_are_refused_before_any_batch(tmp_path: Path) -> None:
    engine = OwnEngine(tmp_path)
    engine.max_length = 20
    with pytest.raises(assay.UnsupportedTaskError, match="asks for 20 tokens, but the model's context length is 20"):
        assay.evaluate(specification(tmp_path, ("writing",)), engine=engine)
    assert not engine.batches


def test_a_continuation_longer_than_the_context_is_a_failure(tmp_path: Path) -> None:
    engine = OwnEngine(tmp_path)
    engine.max_length = 2
    done = assay.evaluate(specification(tmp_path, ("continuing",)), engine=engine)
    assert {failed.cause for failed in done.failures} == {assay.FailureCause.CONTEXT_TOO_LONG}


def test_the_journal_keeps_what_the_loaded_model_says_of_itself(tmp_path: Path) -> None:
    done = assay.evaluate(specification(tmp_path, ("writing",)), engine=OwnEngine(tmp_path))
    kept = json.loads(done.results_file.read_text())["assay"]["provenance"]["specification"]["model"]
    assert kept["local"]["identity"] == {"weights": "none"}
    assert kept["max_length"] == 600
