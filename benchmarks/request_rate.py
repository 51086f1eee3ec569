"""Requests a second on an instant local server: Assay beside lm-eval's client and a bare aiohttp loop, in one run.

- loops: nothing but asking. lm-eval's, between its first request and its last: all its prompts are written before, and
  scored after. The bare one posts bodies that lie ready with aiohttp, and reads the replies as JSON.
- engine: Assay's queue and client with the same bodies, every answer journaled and scored.
- runs: whole runs, from the first request to the end of the process: asking, scoring, writing the files; of Assay's,
  also writing the prompts and the journal.

By the clock, rates are the server's; by CPU, they are of the client's CPU time, which is what the clock would show on a
machine with nothing else to do. The bars hold the engine, by CPU, against both loops, which neither journal nor score,
and Assay's run against lm-eval's. Usage::

    python -m benchmarks.request_rate [--task mmlu_pro] [--data-dir DIR] [--concurrency 1 32 256] [--runs 3]
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.lm_eval_tasks import ANSWERS, Rate, Work, instant_server, measure, median, stats, watch

if TYPE_CHECKING:
    from assay.types import Sample

LEAST_OF_LM_EVAL = (32, 2.0)
"""At this concurrency the engine is to reach so many times the rate of lm-eval's loop, and a run that of lm-eval's."""
LEAST_OF_BARE_LOOP = 0.7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=list(ANSWERS), default="mmlu_pro")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("ASSAY_DATA_DIR", "../shared/data/datasets"))
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--limit", type=int, help="documents of each task")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--loop", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.loop:
        name, url = arguments.loop
        (concurrency,) = arguments.concurrency
        asyncio.run(_LOOPS[name](Work(arguments.task, arguments.data_dir, concurrency, arguments.limit, url)))
        return
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as scratch, instant_server(ANSWERS[arguments.task]) as url:
        data_dir = Path(arguments.data_dir).resolve()
        works = [Work(arguments.task, data_dir, count, arguments.limit, url) for count in arguments.concurrency]
        sys.exit(compare(works, Path(scratch), arguments.runs))


def compare(works: list[Work], scratch: Path, runs: int) -> int:
    """Measure all at each concurrency in turn and print medians; exit code 1 if a bar is missed."""
    warm = Work(works[0].task, works[0].data_dir, 1, 2, works[0].url)
    measure(warm, "assay", scratch)
    measure(warm, "lm_eval", scratch)
    print(_ROW.format("", "", "loops:", "", "", "engine /", "", "runs:", "", ""))
    print(_ROW.format("asked", "at once", "lm-eval", "bare", "engine", "lm-eval", "bare", "lm-eval", "Assay", "ratio"))
    missed = []
    for work in works:
        rates = median_rates(work, scratch, runs)
        show(work, rates)
        missed += missed_bars(work, rates)
    for bar in missed:
        print(f"missed: {bar}")
    return 1 if missed else 0


_RUNS = {"lm_eval": "lm_eval", "assay": "assay_alone"}
_ROW = "{:9}{:>8}{:>10}{:>8}{:>8}{:>10}{:>8}{:>10}{:>8}{:>8}"


def median_rates(work: Work, scratch: Path, runs: int) -> dict[str, Rate]:
    """Of all four, each run so many times, in turn."""
    rates: dict[str, list[Rate]] = {"lm_eval": [], "bare": [], "engine": [], "assay": []}
    for _ in range(runs):
        for name, row in rates.items():
            row.append(loop_rate(name, work) if name in _LOOPS else measure(work, _RUNS[name], scratch).rate)
    fields = [field.name for field in dataclasses.fields(Rate)]
    return {
        name: Rate(*(median([getattr(rate, field) for rate in row]) for field in fields)) for name, row in rates.items()
    }


def show(work: Work, rates: dict[str, Rate]) -> None:
    """Print the rows of one concurrency."""
    for what in ("by_clock", "by_cpu"):
        loops = [getattr(rates[name], what) for name in ("lm_eval", "bare", "engine")]
        runs = [rates[name].to_the_end for name in ("lm_eval", "assay")] if what == "by_cpu" else []
        cells = [*(f"{rate:.0f}" for rate in loops), *(f"{loops[2] / loop:.2f}" for loop in loops[:2])]
        cells += [*(f"{rate:.0f}" for rate in runs), f"{runs[1] / runs[0]:.2f}"] if runs else ["", "", ""]
        print(_ROW.format(what.replace("_", " "), work.concurrency, *cells), flush=True)


def missed_bars(work: Work, rates: dict[str, Rate]) -> list[str]:
    """Which of the bars the rates miss, in words."""
    missed = []
    concurrency, times = LEAST_OF_LM_EVAL
    if work.concurrency == concurrency:
        if rates["engine"].by_cpu < times * rates["lm_eval"].by_cpu:
            missed.append(f"less than {times:g} times the rate of lm-eval's loop at {concurrency}")
        if rates["assay"].to_the_end < times * rates["lm_eval"].to_the_end:
            missed.append(f"less than {times:g} times the rate of lm-eval's run at {concurrency}")
    if rates["engine"].by_cpu < LEAST_OF_BARE_LOOP * rates["bare"].by_cpu:
        missed.append(f"less than {LEAST_OF_BARE_LOOP:.0%} of the bare loop's rate at {work.concurrency}")
    return missed


def written_samples(work: Work) -> tuple[dict[str, Any], list[Sample]]:
    """The task's parts by name, and all its samples in the order in which Assay sends them."""
    from assay.tasks.library import load_tasks
    from assay.tasks.model_args import model_args
    from assay.tasks.requests import RequestWriter, samples
    from assay.types import ModelSpec, TaskOptions

    spec = ModelSpec(base_url=work.url, model="bench")
    options = TaskOptions(data_dir=str(work.data_dir), limit=work.limit)
    writer = RequestWriter(spec, None)
    tasks = load_tasks((work.task,), options, model_args(spec)).tasks
    built = [sample for name, task in tasks.items() for sample in samples(name, task, writer, options)]
    # As in a run, where no more samples are there at a time than are asked at once.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    return tasks, built


def loop_rate(name: str, work: Work) -> Rate:
    """Run one of the loops once, in a process of its own."""
    limit = ["--limit", str(work.limit)] if work.limit else []
    how = ["--loop", name, work.url, "--task", work.task, "--data-dir", str(work.data_dir), *limit]
    command = [sys.executable, "-m", "benchmarks.request_rate", *how, "--concurrency", str(work.concurrency)]
    process = subprocess.Popen(command)
    watch(work.url, process.pid)
    if process.wait():
        sys.exit(f"the loop '{name}' ended with {process.returncode}")
    return Rate.of(stats(work.url))


async def bare_loop(work: Work) -> None:
    import aiohttp

    _, samples = written_samples(work)
    left = iter([request.payload for sample in samples for request in sample.requests])
    headers = {"Content-Type": "application/json", "Authorization": "Bearer EMPTY"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:

        async def post() -> None:
            for body in left:
                async with session.post(f"{work.url}/v1/chat/completions", data=body) as reply:
                    json.loads(await reply.read())

        await asyncio.gather(*(post() for _ in range(work.concurrency)))


async def engine_loop(work: Work) -> None:
    from assay._util.spool import Spool
    from assay.client.concurrency import Concurrency
    from assay.client.openai import OpenAIModel
    from assay.journal import Journal
    from assay.progress import Progress
    from assay.scheduling import ask_all
    from assay.scoring.deadline import Deadline
    from assay.scoring.task_scores import TaskScores, receive_all
    from assay.types import ModelSpec

    tasks, samples = written_samples(work)
    spec = ModelSpec(base_url=work.url, model="bench", concurrency=work.concurrency)
    concurrency = Concurrency(work.concurrency)
    with (
        tempfile.TemporaryDirectory(prefix="assay-bench-") as folder,
        Journal.open(folder, fingerprint="0" * 64, specification={}, fresh=True) as journal,
        Spool(Path(folder)) as spool,
    ):
        scores = {name: TaskScores(name, task, spool, Deadline(30.0)) for name, task in tasks.items()}

        async with OpenAIModel(spec, api_key="EMPTY", concurrency=concurrency) as model:
            score = partial(receive_all, scores)
            await ask_all(iter(samples), model, journal, score, concurrency=concurrency, observer=Progress())
        assert sum(found.scored for found in scores.values()) == len(samples)


_LOOPS = {"bare": bare_loop, "engine": engine_loop}


if __name__ == "__main__":
    main()
