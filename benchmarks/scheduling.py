"""How long a run takes on a simulated server, by the order of asking and the number of requests outstanding.

The engine, the schedule and the search for the right concurrency are Assay's own code, run on simulated time; only the
server and what it is asked are made up: continuous batching, eight tasks with log-normal lengths of answers. Everything
is drawn from a seed, so the tables come out the same every time::

    python -m benchmarks.scheduling [--write docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from math import exp
from pathlib import Path
from typing import NamedTuple

from assay.client.auto_concurrency import AutoConcurrency
from assay.client.concurrency import Concurrency, ServerLoad
from assay.progress import Progress
from assay.scheduling import ask_all
from assay.scheduling.schedule import LongestFirst, Stream
from assay.types import Answer, CompleteSample, Request, Response, Sample
from benchmarks.pages import publish, table
from benchmarks.simulated_server import Costs, ServerSpec, SimulatedServer, run_simulated

SEED = 1234


class TaskShape(NamedTuple):
    """What of a task matters to a server. Lengths in tokens."""

    name: str
    documents: int
    prompt: int
    mean: float
    spread: float
    """Standard deviation of the logarithm of an answer's length."""
    most: int


TASKS = (
    TaskShape("exact", 1319, 180, 180, 0.5, 512),
    TaskShape("instructions", 541, 60, 450, 0.8, 1280),
    TaskShape("reasoning", 2000, 200, 160, 0.6, 1024),
    TaskShape("subjects", 2000, 250, 260, 0.7, 2048),
    TaskShape("science", 198, 250, 800, 0.8, 4096),
    TaskShape("mathematics", 500, 150, 600, 0.7, 4096),
    TaskShape("contest", 60, 150, 3500, 0.5, 8192),
    TaskShape("functions", 844, 150, 250, 0.6, 1024),
)
COSTS = Costs(step=0.0152, sequence=0.0004, prompt_token=0.00005)
LARGE_COSTS = COSTS._replace(sequence=COSTS.sequence / 8)
AMPLE = 10_000_000


class Job(NamedTuple):
    """A sample and what it costs."""

    sample: Sample
    prompt: int
    tokens: int


class Outcome(NamedTuple):
    """What became of a run."""

    seconds: float
    latencies: list[float]
    """In ascending order."""
    concurrency: Concurrency
    preemptions: int


class Workload:
    """Documents of several tasks, drawn at random.

    Args:
        tasks: their shapes.
        share: of the documents that is asked.
        seed: of the lengths.
    """

    def __init__(self, tasks: Sequence[TaskShape] = TASKS, share: float = 1.0, seed: int = SEED) -> None:
        rng = random.Random(seed)
        self.shapes = tasks
        self.jobs = {
            shape.name: [_job(shape, n, rng) for n in range(round(shape.documents * share))] for shape in tasks
        }
        self.by_key = {job.sample.requests[0].key: job for jobs in self.jobs.values() for job in jobs}

    def least_seconds(self, server: ServerSpec) -> float:
        """No order is faster: the work at full batch, and the longest answer with the server to itself."""
        costs, jobs = server.costs, self.by_key.values()
        read = sum(job.prompt for job in jobs) * costs.prompt_token
        work = read + sum(job.tokens for job in jobs) * server.full_step() / server.batch
        longest = max(job.prompt * costs.prompt_token + job.tokens * (costs.step + costs.sequence) for job in jobs)
        return max(work, longest)


def _job(shape: TaskShape, number: int, rng: random.Random) -> Job:
    median = shape.mean / exp(shape.spread**2 / 2)
    tokens = round(rng.lognormvariate(0, shape.spread) * median)
    request = Request(shape.name, number, 0, 0, "generate_until", b"", f"{shape.name}/{number}")
    return Job(Sample(shape.name, number, {}, [], [request]), shape.prompt, max(1, min(tokens, shape.most)))


class Plan(NamedTuple):
    """What is asked."""

    parts: Sequence[Iterator[Sample]]
    """Each begins when the one before is done."""
    learn: Callable[[Sample, Sequence[Response]], None] = lambda *_: None
    """Is told of every complete sample."""


def task_after_task(work: Workload) -> Plan:
    return Plan([iter([job.sample for job in jobs]) for jobs in work.jobs.values()])


def one_queue(work: Workload) -> Plan:
    return Plan([itertools.chain.from_iterable(task_after_task(work).parts)])


def longest_task_first(work: Workload) -> Plan:
    samples = zip(work.shapes, task_after_task(work).parts, strict=True)
    schedule = LongestFirst([Stream([shape.name], drawn, shape.most) for shape, drawn in samples])
    return Plan([iter(schedule)], schedule.learn)


def longest_answer_first(work: Workload) -> Plan:
    jobs = sorted(work.by_key.values(), key=lambda job: -job.tokens)
    return Plan([iter([job.sample for job in jobs])])


ORDERS = {
    "barrier after every task (lm-eval)": task_after_task,
    "one queue, dataset order": one_queue,
    "one queue, task with the longest answers first (Assay)": longest_task_first,
    "one queue, longest answer first (needs an oracle)": longest_answer_first,
}


def simulate(
    work: Workload,
    spec: ServerSpec,
    order: Callable[[Workload], Plan],
    concurrency: Concurrency,
    *,
    tells_load: bool = True,
) -> Outcome:
    """One run.

    Args:
        work: what is asked.
        spec: of the server.
        order: in which it is asked.
        concurrency: how much of it at once.
        tells_load: whether the server publishes how many requests wait.
    """
    server = SimulatedServer(spec)
    model = _Model(server, work)

    async def load() -> ServerLoad | None:
        return server.load() if tells_load else None

    async def run() -> None:
        plan = order(work)

        def learn(complete: Sequence[CompleteSample]) -> None:
            for one in complete:
                plan.learn(*one)

        for part in plan.parts:
            await ask_all(part, model, _Record(), learn, concurrency=concurrency, observer=Progress(), load=load)

    _, seconds = run_simulated(run())
    if len(model.latencies) != len(work.by_key):
        raise RuntimeError(f"{len(model.latencies)} answers to {len(work.by_key)} requests")
    return Outcome(seconds, sorted(model.latencies), concurrency, server.preemptions)


class _Model:
    def __init__(self, server: SimulatedServer, work: Workload) -> None:
        self.latencies: list[float] = []
        self._server = server
        self._work = work

    async def ask(self, request: Request) -> Response:
        job = self._work.by_key[request.key]
        now = asyncio.get_running_loop().time
        began = now()
        await self._server.generate(job.prompt, job.tokens)
        self.latencies.append(now() - began)
        return Answer(text="", completion_tokens=job.tokens, latency=now() - began)


class _Record:
    def lookup(self, key: str) -> Response | None:  # noqa: ARG002
        return None

    def append(self, request: Request, response: Response) -> None:
        pass


class Setting(NamedTuple):
    """A column of the table: a server and what it is asked."""

    name: str
    server: ServerSpec
    share: float = 1.0

    def workload(self) -> Workload:
        """What is asked; iterators in it are new."""
        return Workload(share=self.share)


SETTINGS = (
    Setting("256 at once", ServerSpec(256, AMPLE, COSTS)),
    Setting("256, tight KV", ServerSpec(256, 100_000, COSTS)),
    Setting("256, a tenth asked", ServerSpec(256, AMPLE, COSTS), share=0.1),
    Setting("2048 at once", ServerSpec(2048, AMPLE, LARGE_COSTS)),
)
LIMITS = (1, 10, 32, 64, 128, 256, 1024)
AUTO = {"auto, the server tells its queue": True, "auto, by throughput alone": False}


def enough(server: ServerSpec) -> int:
    """A limit that keeps a server full and lets a tenth more wait."""
    return round(1.1 * server.batch)


def orders_table() -> str:
    works = [(setting.workload(), setting.server) for setting in SETTINGS]
    rows = [
        [
            name,
            *(
                _ratio(simulate(work, server, order, Concurrency(enough(server))), work, server)
                for work, server in works
            ),
        ]
        for name, order in ORDERS.items()
    ]
    rows += [
        [
            f"Assay's order, concurrency {name}",
            *(
                _ratio(simulate(work, server, longest_task_first, AutoConcurrency(), tells_load=tells), work, server)
                for work, server in works
            ),
        ]
        for name, tells in AUTO.items()
    ]
    return table(["order of asking", *(setting.name for setting in SETTINGS)], rows)


def limits_table() -> str:
    setting = SETTINGS[0]
    work = setting.workload()
    rows = []
    for limit in LIMITS:
        outcome = simulate(work, setting.server, longest_task_first, Concurrency(limit))
        rows.append([str(limit), *_figures(outcome, work, setting.server), ""])
    for name, tells in AUTO.items():
        outcome = simulate(work, setting.server, longest_task_first, AutoConcurrency(), tells_load=tells)
        summary = outcome.concurrency.summary()
        rows.append([name, *_figures(outcome, work, setting.server), f"{summary['final']} ({summary['peak']})"])
    return table(["concurrency", "time", "p99 latency, s", "final limit (peak)"], rows)


def _figures(outcome: Outcome, work: Workload, server: ServerSpec) -> list[str]:
    return [_ratio(outcome, work, server), f"{outcome.latencies[int(0.99 * len(outcome.latencies))]:.0f}"]


def _ratio(outcome: Outcome, work: Workload, server: ServerSpec) -> str:
    return f"{outcome.seconds / work.least_seconds(server):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="page whose sections are replaced; else they are printed")
    arguments = parser.parse_args()
    publish([("scheduling-orders", orders_table()), ("scheduling-limits", limits_table())], arguments.write)


if __name__ == "__main__":
    main()
