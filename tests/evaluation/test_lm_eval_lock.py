"""Runs of one process wait for one another: prompts may be drawn from the random numbers that all of it shares."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.errors import UsageError
from assay.evaluation import evaluate, evaluate_async
from assay.gate.calibrate import calibrate
from assay.gate.run import run_gate
from assay.rescoring.rescore import score
from assay.runners import run_accuracy_gsm8k
from assay.types import ModelSpec, Specification, TaskOptions
from tests.evaluation.test_flow import TASKS, answer
from tests.servers.scripted import ScriptedServer

NAMES = ("one", "other")
DRAWN = """
import random


def text(doc):
    return f"{random.randint(0, 10**9)} {doc['question']}"
"""


@pytest.fixture
def server() -> Any:
    with ScriptedServer(answer=answer, models=["scripted"], latency=0.01) as running:
        yield running


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Two tasks whose prompts are drawn as they are written."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "drawn.py").write_text(DRAWN)
    (folder / "rows.py").write_text((TASKS / "rows.py").read_text())
    for name in NAMES:
        (folder / f"{name}.yaml").write_text(
            f"include: {TASKS}/_template_yaml\ntask: {name}\ndataset_kwargs: {{kind: {name}}}\n"
            "doc_to_text: !function drawn.text\n"
        )
    return folder


async def together(specifications: list[Specification]) -> None:
    await asyncio.gather(*map(evaluate_async, specifications))


def in_loops_of_their_own(specifications: list[Specification]) -> None:
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda one: asyncio.run(evaluate_async(one)), specifications))


def in_both_ways(specifications: list[Specification]) -> None:
    first, second = specifications
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(evaluate, second)
        asyncio.run(evaluate_async(first))
        other.result()


@pytest.mark.parametrize(
    "run", [in_loops_of_their_own, in_both_ways, lambda specifications: asyncio.run(together(specifications))]
)
def test_runs_at_the_same_time_ask_what_each_asks_alone(
    server: ScriptedServer, tasks: Path, tmp_path: Path, run: Any
) -> None:
    def specifications(folder: str) -> list[Specification]:
        model = ModelSpec(base_url=server.url, model="scripted", concurrency=4)
        options = TaskOptions(include_path=str(tasks), limit=20)
        return [
            Specification(tasks=(name,), model=model, options=options, output_dir=str(tmp_path / folder / name))
            for name in NAMES
        ]

    for specification in specifications("alone"):
        evaluate(specification)
    alone = Counter(map(json.dumps, server.answered))
    server.answered.clear()
    run(specifications("together"))
    assert Counter(map(json.dumps, server.answered)) == alone


def test_a_run_that_is_cancelled_while_it_waits_holds_up_nobody(
    server: ScriptedServer, tasks: Path, tmp_path: Path
) -> None:
    model = ModelSpec(base_url=server.url, model="scripted")
    options = TaskOptions(include_path=str(tasks), limit=5)
    specification = Specification(tasks=("one",), model=model, options=options, output_dir=str(tmp_path / "out"))

    async def cancelled() -> None:
        first = asyncio.create_task(evaluate_async(specification))
        waiting = asyncio.create_task(evaluate_async(specification))
        await asyncio.sleep(0)
        waiting.cancel()
        await first
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    assert evaluate(specification).scores


def test_inside_an_event_loop_what_can_be_written_is_named(server: ScriptedServer, tmp_path: Path) -> None:
    policy = tmp_path / "gate.toml"
    policy.write_text(
        f'[models.main]\nbase_url = "{server.url}"\nmodel = "scripted"\n'
        '[[checks]]\ntask = "gsm8k"\nmetric = "exact_match,strict-match"\nmin = 0.5\n'
    )
    specification = Specification(tasks=("gsm8k",), model=ModelSpec(base_url=server.url, model="scripted"))
    calls = {
        r"`await evaluate_async\(specification\)`": lambda: evaluate(specification),
        r"`await asyncio.to_thread\(run_accuracy_gsm8k, …\)`": lambda: run_accuracy_gsm8k(
            server.url, "scripted", str(tmp_path / "runner")
        ),
        r"`await asyncio.to_thread\(run_gate, …\)`": lambda: run_gate(policy),
        r"`await asyncio.to_thread\(calibrate, …\)`": lambda: calibrate(specification),
    }

    async def call(what: Any) -> None:
        what()

    for words, what in calls.items():
        with pytest.raises(UsageError, match=words):
            asyncio.run(call(what))
    assert not (tmp_path / "runner").exists()


def test_scoring_again_waits_too_and_stops_no_event_loop(server: ScriptedServer, tasks: Path, tmp_path: Path) -> None:
    model = ModelSpec(base_url=server.url, model="scripted", concurrency=4)
    options = TaskOptions(include_path=str(tasks), limit=20)

    def specification(name: str) -> Specification:
        return Specification(tasks=(name,), model=model, options=options, output_dir=str(tmp_path / name))

    first = evaluate(specification("one")).results_file
    evaluate(specification("other"))
    alone = Counter(map(json.dumps, server.answered[20:]))
    server.answered.clear()

    async def at_the_same_time() -> Any:
        run = asyncio.create_task(evaluate_async(msgspec.structs.replace(specification("other"), fresh=True)))
        while not server.answered:
            await asyncio.sleep(0.01)
        with pytest.raises(UsageError, match=r"await asyncio.to_thread\(score, …\)"):
            score(first)
        again = await asyncio.to_thread(score, first)
        assert run.done()
        return again

    assert asyncio.run(at_the_same_time()).differences == ()
    assert Counter(map(json.dumps, server.answered)) == alone
