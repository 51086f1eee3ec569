"""A long run against a server that errs: ``python -m benchmarks.soak [--minutes 30] [--concurrency 256]``.

The server answers after one to three seconds, and one request in a hundred meets a fault: resets, 429, 500, a reply
that breaks off, a hang; one in two thousand is refused for good. While `assay run` works its way through as many
questions as fill the time, its memory is read from the system. At the end

- every question must be scored or failed, and exactly those failed that were refused for good;
- the score must be the one that the answers earn;
- memory must grow by no more than what results need (two kilobytes a sample);
- no request may have been stuck: the run must end about when the server's delays say, and no answer may have taken
  longer than any delay explains.

The exit code is 1 if anything is not so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.servers.scripted import Fault, ScriptedServer

MEAN_LATENCY = 2.0
HANG = 20.0
FAULTY = 0.01
REFUSED = 0.0005
MOST_BYTES_A_SAMPLE = 2048
_TRANSIENT = ("http_429", "http_500", "http_503", "reset", "close_mid_body", "empty_choices", "hang")
_LOOK_EVERY = 5.0
_TASK = """\
task: soak
custom_dataset: !function rows.load
dataset_kwargs:
  count: {count}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n"]
filter_list:
  - name: get-answer
    filter:
      - function: regex
        regex_pattern: "answer is (\\\\d+)"
      - function: take_first
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""
_ROWS = """
def load(count, **_):
    from datasets import Dataset
    return {"test": Dataset.from_dict({"question": [f"What is {n} + 1 ?" for n in range(count)],
                                       "answer": [str(n + 1) for n in range(count)]})}
"""


def write_task(folder: Path, count: int) -> None:
    """Write the task ``soak`` with so many questions into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.yaml").write_text(_TASK.format(count=count))
    (folder / "rows.py").write_text(_ROWS)


def answer(body: dict[str, Any]) -> str:
    """Right for two numbers in three."""
    number = number_in(body) or 0
    return f"The answer is {number + (1 if number % 3 else 2)}"


def latency(body: dict[str, Any]) -> float:
    """Between half the mean and half as much again, by the question."""
    lot = random.Random(hashlib.sha256(asked(body).encode()).digest())
    return MEAN_LATENCY * lot.uniform(0.5, 1.5)


def asked(body: dict[str, Any]) -> str:
    """The question; the probe before the run puts others, some of them not as a conversation."""
    return str(body["messages"][-1]["content"] if body.get("messages") else body.get("prompt", ""))


def number_in(body: dict[str, Any]) -> int | None:
    """The number that a question is about, which is its document's; None for what the probe asks."""
    found = re.fullmatch(r"What is (\d+) \+ 1 \?", asked(body))
    return int(found[1]) if found else None


def faults() -> list[Fault]:
    """One in a hundred passes, one in two thousand does not."""
    passing = [
        Fault(kind, fraction=FAULTY / len(_TRANSIENT), first=1, seconds=HANG if kind == "hang" else 0.0)
        for kind in _TRANSIENT
    ]
    return [Fault("http_400", fraction=REFUSED), *passing]


def serve(pipe: Connection) -> None:
    """Serve until told to stop, then tell how many requests came and which questions were refused."""
    refused: set[int] = set()
    count = 0
    with ScriptedServer(answer=answer, latency=latency, faults=faults(), models=["soak"]) as server:
        pipe.send(server.url)
        stopping = False
        while not stopping:
            stopping = pipe.poll(1.0)
            seen, server.requests = server.requests, []
            server.answered = []
            count += len(seen)
            for request in seen:
                number = number_in(request.body)
                if number is not None and server.faults[0].befalls(hashlib.sha256(request.raw).digest(), 0, 0):
                    refused.add(number)
        pipe.send((count, server.most_at_once, refused))


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def watch(process: subprocess.Popen[bytes], journal_folder: Path, looks: list[tuple[int, int]]) -> None:
    """Note, as long as the process lives, how large its journal and its memory are."""
    while process.poll() is None:
        try:
            written = sum(file.stat().st_size for file in journal_folder.glob("*.journal"))
            looks.append((written, memory_of(process.pid)))
        except (OSError, IndexError):
            pass
        time.sleep(_LOOK_EVERY)


def soak(minutes: float, concurrency: int, folder: Path) -> list[str]:
    """Run it; what is not as it must be."""
    count = int(minutes * 60 * concurrency / MEAN_LATENCY)
    write_task(folder, count)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    url = ours.recv()
    print(f"{count} questions, {concurrency} at once, about {minutes:g} minutes", flush=True)
    started = time.monotonic()
    command = ["run", "soak", "--include-path", str(folder), "--base-url", url, "--model", "soak"]
    how = ["--concurrency", str(concurrency), "--output-dir", str(folder / "results"), "--json"]
    with (folder / "out.json").open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "assay", *command, *how], stdout=out)
        looks: list[tuple[int, int]] = []
        watcher = threading.Thread(target=watch, args=(process, folder / "results" / "soak" / "journal", looks))
        watcher.start()
        code = process.wait()
        watcher.join()
    seconds = time.monotonic() - started
    ours.send("stop")
    asked, at_once, refused = ours.recv()
    server.join()
    document = json.loads((folder / "out.json").read_text())
    print(f"ended with {code} after {seconds / 60:.1f} minutes; {asked} requests, up to {at_once} at once")
    return [
        *wrong_counts(document, count, refused),
        *grown(looks, count),
        *stuck(document, seconds, minutes),
    ]


def wrong_counts(document: dict[str, Any], count: int, refused: set[int]) -> list[str]:
    """What is wrong about samples and score."""
    failed = {failure["doc_id"] for failure in document["assay"]["failures"]}
    [score] = document["assay"]["scores"]
    right = sum(number % 3 != 0 for number in range(count) if number not in refused)
    print(f"scored {score['n']}, failed {len(failed)} (refused {len(refused)}), score {score['value']:.6f}")
    problems = []
    if failed != refused:
        problems.append(f"failed and refused differ by {len(failed ^ refused)} questions")
    if score["n"] != count - len(refused):
        problems.append(f"{score['n']} of {count - len(refused)} questions are scored")
    if abs(score["value"] - right / (count - len(refused))) > 1e-12:
        problems.append(f"the score is {score['value']}, not {right / (count - len(refused))}")
    return problems


def grown(looks: list[tuple[int, int]], count: int) -> list[str]:
    """What is wrong about memory while answers come, from a tenth of the way on."""
    last = max(written for written, _ in looks)
    underway = [(written / last * count, memory) for written, memory in looks if 0.1 <= written / last <= 0.99]
    if len(underway) < 2:
        return ["too short to tell how memory grows"]
    (first_sample, first), (last_sample, final) = underway[0], underway[-1]
    each = (final - first) / (last_sample - first_sample)
    peak = max(memory for _, memory in looks)
    print(f"memory {first / 1e6:.0f} MB at first, {final / 1e6:.0f} MB near the end: {each:.0f} bytes a sample")
    print(f"peak {peak / 1e6:.0f} MB, while scores are explained and the report is written")
    return [] if each <= MOST_BYTES_A_SAMPLE else [f"memory grows by {each:.0f} bytes a sample"]


def stuck(document: dict[str, Any], seconds: float, minutes: float) -> list[str]:
    """What is wrong about time."""
    quantiles = document["assay"]["totals"]["latency_seconds"]
    print(f"seconds an answer took: {', '.join(f'{name} {value:.2f}' for name, value in quantiles.items())}")
    problems = []
    if seconds > 1.25 * minutes * 60 + 60:
        problems.append(f"{seconds / 60:.1f} minutes instead of {minutes:g}")
    if quantiles["p99"] > 1.5 * MEAN_LATENCY + 5:
        problems.append(f"one answer in a hundred took more than {quantiles['p99']:.1f} s")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--concurrency", type=int, default=256)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assay-soak-") as folder:
        problems = soak(arguments.minutes, arguments.concurrency, Path(folder))
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("nothing is wrong" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
