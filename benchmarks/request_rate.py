"""Requests a second on an instant local server: Assay beside lm-eval's client and a bare aiohttp loop, in one run.

- lm-eval: a whole run of it; all its prompts are written before the first request leaves, and scored after the last.
- bare loop: posts bodies that lie ready, and reads the replies as JSON.
- client: Assay's client with the same bodies, every answer journaled.
- whole run: Assay's, which writes prompts, journals and scores meanwhile.

Rates are the server's, between the first request and the last: by the clock, and by the client's CPU time, which is
what the clock would show on a machine with nothing else to do. The bars compare like with like: by CPU time, the client
with lm-eval's request loop and with the bare one. Usage::

    python -m benchmarks.request_rate [--task mmlu_pro] [--data-dir DIR] [--concurrency 1 32 256] [--runs 3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.lm_eval_tasks import ANSWERS, Rate, Work, instant_server, measure, median, stats, watch

LEAST_OF_LM_EVAL = (32, 2.0)
"""At this concurrency the client is to reach so many times lm-eval's rate."""
LEAST_OF_BARE_LOOP = 0.7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=list(ANSWERS), default="mmlu_pro")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("ASSAY_DATA_DIR", "../shared/data/datasets"))
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--limit", type=int, help="documents of each task")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--loop", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.loop:
        name, url, bodies, concurrency = arguments.loop
        asyncio.run(_LOOPS[name](url, Path(bodies), int(concurrency)))
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
    bodies = written_bodies(works[0], scratch)
    missed = []
    print(
        f"{'concurrency':21}{'lm-eval':>9}{'bare loop':>11}{'client':>8}{'/lm-eval':>10}{'/bare':>7}{'whole run':>11}"
    )
    for work in works:
        rates: dict[str, list[Rate]] = {"lm_eval": [], "bare": [], "client": [], "assay": []}
        for _ in range(runs):
            for engine, row in rates.items():
                row.append(loop_rate(engine, work, bodies) if engine in _LOOPS else measure(work, engine, scratch).rate)
        for what in ("by_clock", "by_cpu"):
            theirs, bare, client, whole = (median([getattr(rate, what) for rate in row]) for row in rates.values())
            print(
                f"{work.concurrency:11} {what:9}{theirs:9.0f}{bare:11.0f}{client:8.0f}"
                f"{client / theirs:10.2f}{client / bare:7.2f}{whole:11.0f}",
                flush=True,
            )
        if work.concurrency == LEAST_OF_LM_EVAL[0] and client < LEAST_OF_LM_EVAL[1] * theirs:
            missed.append(f"less than {LEAST_OF_LM_EVAL[1]:g} times lm-eval's rate at {work.concurrency}")
        if client < LEAST_OF_BARE_LOOP * bare:
            missed.append(f"less than {LEAST_OF_BARE_LOOP:.0%} of the bare loop's rate at {work.concurrency}")
    for bar in missed:
        print(f"missed: {bar}")
    return 1 if missed else 0


def written_bodies(work: Work, scratch: Path) -> Path:
    """A file with the task's request bodies, one a line, in the order in which Assay sends them."""
    from assay.tasks.library import load_tasks
    from assay.tasks.model_args import model_args
    from assay.tasks.requests import RequestWriter, samples
    from assay.types import ModelSpec, TaskOptions

    spec = ModelSpec(base_url=work.url, model="bench")
    options = TaskOptions(data_dir=str(work.data_dir), limit=work.limit)
    writer = RequestWriter(spec, None)
    file = scratch / "bodies.jsonl"
    with file.open("wb") as lines:
        for name, task in load_tasks((work.task,), options, model_args(spec)).tasks.items():
            for sample in samples(name, task, writer, options):
                lines.writelines(request.payload + b"\n" for request in sample.requests)
    return file


def loop_rate(name: str, work: Work, bodies: Path) -> Rate:
    """Run one of the loops once, in a process of its own."""
    how = ["--loop", name, work.url, str(bodies), str(work.concurrency)]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.request_rate", *how])
    watch(work.url, process.pid)
    if process.wait():
        sys.exit(f"the loop '{name}' ended with {process.returncode}")
    return Rate.of(stats(work.url))


async def bare_loop(url: str, bodies: Path, concurrency: int) -> None:
    import aiohttp

    left = iter(bodies.read_bytes().splitlines())
    headers = {"Content-Type": "application/json", "Authorization": "Bearer EMPTY"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:

        async def work() -> None:
            for body in left:
                async with session.post(f"{url}/v1/chat/completions", data=body) as reply:
                    json.loads(await reply.read())

        await asyncio.gather(*(work() for _ in range(concurrency)))


async def client_loop(url: str, bodies: Path, concurrency: int) -> None:
    from assay.journal import Journal
    from assay.models.openai import OpenAIModel
    from assay.types import ModelSpec, Request

    requests = (
        Request("task", place, 0, 0, "generate_until", body, f"{place:064x}")
        for place, body in enumerate(bodies.read_bytes().splitlines())
    )
    spec = ModelSpec(base_url=url, model="bench", concurrency=concurrency)
    with Journal.open(bodies.parent / "journal", fingerprint="0" * 64, specification={}, fresh=True) as journal:
        async with OpenAIModel(spec, api_key="EMPTY") as model:

            async def work() -> None:
                for request in requests:
                    journal.append(request, await model.ask(request))

            await asyncio.gather(*(work() for _ in range(concurrency)))


_LOOPS = {"bare": bare_loop, "client": client_loop}


if __name__ == "__main__":
    main()
