"""Assay against real servers: ``python -m benchmarks.real_servers [NAME=URL[#MODEL] …] --data-dir DIR``.

llama.cpp is started here, from the extra ``demo``; other servers are given as running ones (docs/servers.md says how
they were started). Of each server:

- the probe,
- twenty samples of gsm8k_cot and of assay_demo, twice, and once streamed: all runs should be alike.

And llama.cpp is killed with SIGKILL in the middle of a run and started again: the run should go on and end as if
nothing had been. Prints what docs/servers.md holds. The exit code is 1 if a run did not end, or the run whose server
was killed differs from one in peace.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.client.probe import TITLES, Capability, ProbeReport, probe
from assay.demo import TASK, TASK_FOLDER
from assay.demo.weights import MODEL_NAME, find_model_file
from assay.errors import AssayError
from assay.evaluation import Evaluation, evaluate
from assay.progress import Progress
from assay.types import ModelSpec, Specification, TaskOptions
from tests.evaluation.test_flow import samples, without_times

_TASKS = ("gsm8k_cot", TASK)
_SLOTS = 4
_PATIENCE = 120.0
"""Seconds until a server must be ready."""


@dataclass(frozen=True)
class Target:
    """A running server."""

    name: str
    url: str
    model: str | None = None


@dataclass(frozen=True)
class Work:
    """What is run on each server."""

    data_dir: str | None
    scratch: Path
    limit: int
    max_gen_toks: int
    probe_seconds: float

    def run(
        self,
        target: Target,
        model: str,
        task: str,
        name: str,
        *,
        progress: Progress | None = None,
        stream: bool = False,
    ) -> Evaluation:
        """Evaluate one task."""
        options = TaskOptions(
            limit=self.limit,
            gen_kwargs={"max_gen_toks": self.max_gen_toks} if task != TASK else {},
            include_path=str(TASK_FOLDER),
            data_dir=self.data_dir,
        )
        return evaluate(
            Specification(
                tasks=(task,),
                model=ModelSpec(base_url=target.url, model=model, concurrency=_SLOTS, stream=stream),
                options=options,
                output_dir=str(self.scratch / f"{target.name}-{task}-{name}"),
                fresh=True,
            ),
            progress,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", type=_target, metavar="NAME=URL[#MODEL]")
    parser.add_argument("--data-dir", default=os.environ.get("ASSAY_DATA_DIR", "../shared/data/datasets"))
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--max-gen-toks", type=int, default=48, help="for gsm8k_cot, whose answers are long")
    parser.add_argument("--probe-seconds", type=float, default=600.0)
    parser.add_argument("--only-given", action="store_true", help="leave out llama.cpp")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assay-servers-") as folder:
        work = Work(arguments.data_dir, Path(folder), arguments.limit, arguments.max_gen_toks, arguments.probe_seconds)
        problems = examine(work, arguments.servers, with_llama=not arguments.only_given)
    sys.exit(1 if problems else 0)


def examine(work: Work, others: list[Target], *, with_llama: bool) -> int:
    """Look at all servers; returns the number of things that went wrong."""
    reports: dict[str, ProbeReport] = {}
    problems = 0
    if with_llama:
        with LlamaServer(work.scratch / "llama.log") as llama:
            problems += examine_one(llama.target, work, reports)
            problems += kill_in_mid_run(llama, work)
    for target in others:
        problems += examine_one(target, work, reports)
    print_reports(reports)
    return problems


def examine_one(target: Target, work: Work, reports: dict[str, ProbeReport]) -> int:
    """Probe a server, which `reports` gets, and run the tasks; returns how many did not end."""
    spec = ModelSpec(base_url=target.url, model=target.model or "")
    reports[target.name] = report = probe(spec, seconds=work.probe_seconds)
    return compare_runs(target, report, work)


def compare_runs(target: Target, report: ProbeReport, work: Work) -> int:
    """Run each task twice and once streamed; returns how many did not end."""
    print(f"\n{target.name}: {report.requests} requests of the probe in {report.seconds:.0f} s", flush=True)
    unfinished = 0
    for task in _TASKS:
        started = time.monotonic()
        try:
            first, second = (work.run(target, report.model or "", task, str(number)) for number in range(2))
            middle = time.monotonic()
            streamed = work.run(target, report.model or "", task, "streamed", stream=True)
        except AssayError as error:
            print(f"  {task}: {error}", flush=True)
            unfinished += 1
            continue
        ended = time.monotonic()
        print(
            f"  {task}: {describe(first)}; the second run {difference(first, second)}; {middle - started:.0f} s\n"
            f"    streamed: {describe(streamed)}; {difference(first, streamed)}; {ended - middle:.0f} s; "
            f"first tokens {_quantiles(streamed, 'ttft_seconds')}, answers {_quantiles(streamed, 'latency_seconds')}",
            flush=True,
        )
    return unfinished


def describe(evaluation: Evaluation) -> str:
    values = ", ".join(f"{score.metric} {score.value}" for score in evaluation.scores)
    failed = len(evaluation.failures)
    totals = evaluation.results["assay"]["totals"]
    return f"{values}, {failed} failed, {totals['completion_tokens']} completion tokens"


def _quantiles(evaluation: Evaluation, key: str) -> str:
    quantiles = evaluation.results["assay"]["totals"].get(key, {})
    return ", ".join(f"{name} {value:.2f} s" for name, value in quantiles.items()) or "not told"


def difference(one: Evaluation, other: Evaluation) -> str:
    if _is_same(one, other):
        return "is the same but for times"
    pairs = zip(_answers(one), _answers(other), strict=False)
    return f"differs in {sum(a != b for a, b in pairs)} of {len(_answers(one))} answers"


def _is_same(one: Evaluation, other: Evaluation) -> bool:
    return _comparable(one) == _comparable(other) and samples(one) == samples(other)


def _comparable(evaluation: Evaluation) -> dict[str, Any]:
    """The results without times, and without what only says that answers were streamed."""
    document = without_times(evaluation.results)
    document["assay"]["totals"].pop("ttft_seconds", None)
    document["assay"]["provenance"]["specification"]["model"].pop("stream")
    return document


def _answers(evaluation: Evaluation) -> list[Any]:
    """Responses by document; a document has a line for each filter."""
    lines = [json.loads(line) for text in samples(evaluation).values() for line in text.splitlines()]
    return [answer for _, answer in sorted({line["doc_id"]: line["resps"] for line in lines}.items())]


class _KillAfter(Progress):
    """Kills a server once so many answers have come, and starts it again a while later."""

    def __init__(self, server: LlamaServer, answers: int, down: float) -> None:
        self._server = server
        self._left = answers
        self._down = down
        self.restarter: threading.Thread | None = None

    def responded(self, *_: object) -> None:
        """One more."""
        self._left -= 1
        if self._left == 0:
            self._server.kill()
            self.restarter = threading.Thread(target=self._restart)
            self.restarter.start()

    def _restart(self) -> None:
        time.sleep(self._down)
        self._server.start()


def kill_in_mid_run(llama: LlamaServer, work: Work) -> int:
    """Kill the server under a run; returns 1 unless the run ends like one in peace."""
    peaceful = work.run(llama.target, MODEL_NAME, TASK, "peaceful")
    killer = _KillAfter(llama, answers=work.limit // 2, down=10.0)
    try:
        troubled = work.run(llama.target, MODEL_NAME, TASK, "troubled", progress=killer)
    finally:
        if killer.restarter is not None:
            killer.restarter.join()
    attempts = troubled.results["assay"]["totals"]["attempts"]
    print(
        f"\n{llama.target.name}, killed after {work.limit // 2} of {work.limit} answers, started again 10 s later: "
        f"{describe(troubled)}; {attempts} attempts; the run {difference(peaceful, troubled)} from one in peace",
        flush=True,
    )
    return int(not _is_same(peaceful, troubled))


def print_reports(reports: dict[str, ProbeReport]) -> None:
    """A table in Markdown: a row for each capability, a column for each server."""
    print("\n| | " + " | ".join(f"{name} ({r.software} {r.version or ''})" for name, r in reports.items()) + " |")
    print("| --- " * (len(reports) + 1) + "|")
    for capability in Capability:
        cells = [f"**{finding.seen}** {finding.evidence}".replace("|", "\\|") for finding in _row(reports, capability)]
        print(f"| {TITLES[capability]} | " + " | ".join(cells) + " |")


def _row(reports: dict[str, ProbeReport], capability: Capability) -> Iterator[Any]:
    return (report[capability] for report in reports.values())


class LlamaServer:
    """llama.cpp with the demo's model on a port of its own, which it keeps when it is started again."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.target = Target("llama.cpp", f"http://127.0.0.1:{self._port}", MODEL_NAME)

    def __enter__(self) -> LlamaServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it answers."""
        # Its threads must not spin: on a busy machine that makes it ten times slower.
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
        command = [sys.executable, "-c", _SERVE, str(find_model_file()), MODEL_NAME, str(self._port), str(_SLOTS)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        give_up = time.monotonic() + _PATIENCE
        while not _is_ready(self.target.url):
            if time.monotonic() > give_up or self._process.poll() is not None:
                sys.exit(f"llama.cpp did not start:\n{self._log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


_SERVE = """
import os, sys, threading
from xllamacpp import CommonParams, Server
model, name, port, slots = sys.argv[1:]
p = CommonParams()
p.model.path, p.model_alias, p.hostnames, p.port = model, {name}, ["127.0.0.1"], int(port)
p.n_parallel, p.n_ctx, p.kv_unified, p.cache_ram_mib = int(slots), int(slots) * 2048, False, 0
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = min(8, len(os.sched_getaffinity(0)))
p.endpoint_metrics = True
server = Server(p)
threading.Event().wait()
"""


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _target(text: str) -> Target:
    name, _, address = text.partition("=")
    url, _, model = address.partition("#")
    if not url:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URL[#MODEL]")
    return Target(name, url, model or None)


if __name__ == "__main__":
    main()
