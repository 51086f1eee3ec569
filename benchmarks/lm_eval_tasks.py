"""Whole tasks on an instant local server: Assay beside lm-eval, in one run, on the same work.

For each engine: CPU seconds of its process (the server's are not in it), time from its start to the server's first
request, peak memory, wall time. Assay runs as its users run it, with probe, triage and report, and once more without
these, of which lm-eval has none. Usage::

    python -m benchmarks.lm_eval_tasks [TASK …] [--data-dir DIR] [--concurrency 256] [--limit N] [--runs 1]

mmlu is scored by log-likelihood, on the completions endpoint and with a tokenizer; lm-eval's process then needs
transformers, which may lie in a folder of its own (``--packages``).

The data directory holds data sets as on the Hugging Face hub (``DIR/<owner>/<name>``). lm-eval runs inside it, so that
hub names resolve to its folders; both engines get caches of their own, warmed by a first run that is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child_packages import FOR_LM_EVAL, python_path
from benchmarks.vocabulary import write_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWERS = {"gsm8k_cot": "So 9 + 9 = 18. The answer is 18.", "mmlu_pro": "Let us see. The answer is (B)."}
SCORED_BY_LOGLIKELIHOOD = ("mmlu",)
ALONE = ("--no-report", "--no-probe", "--no-triage")
"""What leaves Assay with the work that lm-eval does."""
ENGINES = ("lm_eval", "assay", "assay_alone")
REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Rate:
    """How fast a client asks, between its first request and its last."""

    by_clock: float
    """Requests a second."""
    by_cpu: float
    """Requests a CPU second of the client's: what the clock would show on a machine with nothing else to do."""
    to_the_end: float
    """The same between the first request and the end of the process: with what is left to do after the last."""

    @staticmethod
    def of(seen: dict[str, Any], cpu_seconds: float = float("nan")) -> Rate:
        """From what the server saw, and the CPU time of the whole process."""
        by_clock = (seen["requests"] - 1) / (seen["last"] - seen["first"])
        by_cpu = seen["seen_requests"] / seen["seen_cpu"] if seen["seen_cpu"] else float("nan")
        return Rate(by_clock, by_cpu, seen["requests"] / (cpu_seconds - seen["first_cpu"]))


@dataclass(frozen=True)
class Measurement:
    """One process's cost."""

    cpu_seconds: float
    first_request_seconds: float
    peak_megabytes: float
    wall_seconds: float
    requests: int
    score: float
    rate: Rate


@dataclass(frozen=True)
class Work:
    """One task for both engines."""

    task: str
    data_dir: Path
    concurrency: int
    limit: int | None
    url: str
    packages: Path = FOR_LM_EVAL
    """What lm-eval's process has beyond this one's packages."""
    tokenizer: str | None = None
    """A folder; the task is then scored by log-likelihood."""

    def assay(self, output: Path) -> list[str]:
        """Assay's command."""
        limit = ["--limit", str(self.limit)] if self.limit else []
        where = ["--base-url", self.url, "--model", "bench", "--data-dir", str(self.data_dir)]
        how = ["--output-dir", str(output), "--concurrency", str(self.concurrency), "--fresh"]
        scored = ["--completions", "--tokenizer", self.tokenizer] if self.tokenizer else []
        return [sys.executable, "-m", "assay", "run", self.task, *where, *how, *scored, *limit]

    def lm_eval(self, output: Path) -> list[str]:
        """lm-eval's command."""
        limit = ["--limit", str(self.limit)] if self.limit else []
        how = ["--log_samples", "--output_path", str(output)]
        common = f"model=bench,num_concurrent={self.concurrency},timeout=7200"
        if self.tokenizer:
            tokens = f"tokenizer_backend=huggingface,tokenizer={self.tokenizer}"
            arguments = f"{common},base_url={self.url}/v1/completions,{tokens}"
            model = ["--model", "local-completions", "--model_args", arguments]
        else:
            no_tokens = "tokenized_requests=False,tokenizer_backend=None"
            arguments = f"{common},base_url={self.url}/v1/chat/completions,{no_tokens}"
            model = ["--model", "local-chat-completions", "--model_args", arguments]
            how += ["--apply_chat_template", "--fewshot_as_multiturn"]
        return [sys.executable, "-m", "lm_eval", "run", *model, "--tasks", self.task, *how, *limit]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=[*ANSWERS, *SCORED_BY_LOGLIKELIHOOD])
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("ASSAY_DATA_DIR", "../shared/data/datasets"))
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--packages", type=Path, default=FOR_LM_EVAL)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as scratch:
        data_dir = Path(arguments.data_dir).resolve()
        vocabulary = write_tokenizer(Path(scratch) / "tokenizer", data_dir)
        for task in arguments.tasks or ANSWERS:
            tokenizer = vocabulary if task in SCORED_BY_LOGLIKELIHOOD else None
            with instant_server(ANSWERS.get(task, ""), tokenizer) as url:
                work = Work(task, data_dir, arguments.concurrency, arguments.limit, url, arguments.packages, tokenizer)
                compare(work, Path(scratch), arguments.runs)


def compare(work: Work, scratch: Path, runs: int) -> None:
    """Measure both engines in turn and print the ratio of their medians."""
    warm = replace(work, limit=2)
    measure(warm, "assay", scratch)
    measure(warm, "lm_eval", scratch)
    rows: dict[str, list[Measurement]] = {engine: [] for engine in ENGINES}
    for _ in range(runs):
        for engine, row in rows.items():
            row.append(measure(work, engine, scratch))
    print(f"\n{work.task}, {rows['assay'][0].requests} requests, concurrency {work.concurrency}, {runs} run(s)")
    print(f"{'':24}{'lm-eval':>10}{'assay':>10}{'ratio':>8}{'alone':>10}{'ratio':>8}")
    for name in ("cpu_seconds", "first_request_seconds", "peak_megabytes", "wall_seconds", "requests", "score"):
        theirs, ours, alone = (median([getattr(row, name) for row in rows[engine]]) for engine in ENGINES)
        ratios = [value / theirs if theirs else float("nan") for value in (ours, alone)]
        print(f"{name:24}{theirs:10.2f}{ours:10.2f}{ratios[0]:8.3f}{alone:10.2f}{ratios[1]:8.3f}", flush=True)


def measure(work: Work, engine: str, scratch: Path) -> Measurement:
    """Run one engine once, in a process of its own."""
    output = Path(tempfile.mkdtemp(dir=scratch))
    command = work.lm_eval(output) if engine == "lm_eval" else work.assay(output)
    command += ALONE if engine == "assay_alone" else ()
    caches = {"HF_HOME": f"{scratch}/hf-{engine.partition('_alone')[0]}", "ASSAY_CACHE_DIR": f"{scratch}/assay-cache"}
    environment = {**os.environ, **caches, "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "EMPTY"}
    if engine == "lm_eval":
        environment["PYTHONPATH"] = python_path(work.packages)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Compiled modules are kept, as they are for a user.
    started = time.time()
    with (output / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=work.data_dir, env=environment, stdout=log, stderr=log)
        watch(work.url, process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.time() - started
    if process.returncode:
        sys.exit(f"{engine} ended with {process.returncode}:\n{(output / 'log').read_text()[-3000:]}")
    seen = stats(work.url)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Measurement(
        cpu_seconds=cpu_seconds,
        first_request_seconds=seen["first"] - started,
        peak_megabytes=usage.ru_maxrss / 1024,
        wall_seconds=wall,
        requests=seen["requests"],
        score=score(output, work.task),
        rate=Rate.of(seen, cpu_seconds),
    )


def score(output: Path, task: str) -> float:
    results = json.loads(next(output.rglob("results_*.json")).read_text())["results"][task]
    return float(next(value for key, value in results.items() if key.startswith(("exact_match,", "acc,"))))


def watch(url: str, pid: int) -> None:
    """Have the server count anew, for this client."""
    urllib.request.urlopen(f"{url}/watch?{pid}", timeout=10).close()


def stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/stats", timeout=10) as reply:
        counted: dict[str, Any] = json.load(reply)
    return counted


@contextmanager
def instant_server(answer: str, tokenizer: str | None = None) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.instant_server", str(port), answer, *filter(None, [tokenizer])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
