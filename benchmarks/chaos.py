"""Kill runs, damage journals, resume, and compare: ``python -m benchmarks.chaos [--runs 200] [--damages 200]``.

Each run is ``assay run`` on the tests' own tasks against the tests' scripted server. It is killed with SIGKILL up to
three times: at any moment, during a sync, in a half-written record, or while results are being written; then it is
resumed to its end. And journals of whole runs are cut, or some of their bytes flipped, and resumed. Every time

- the results must equal those of a run that nobody touched, but for times, and stand in one set of files;
- no answer that the journal held may be asked for again, and every one that it did not hold must be.

All is drawn from ``--seed``, except where in its work a process is when its time comes. The exit code is 1 if anything
was not as it must be; then the folders of those runs are kept. Processes are forked from one that has imported
everything, so that kills fall into runs and not into imports.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from assay.journal import check, find_journals
from tests.evaluation.test_flow import TASKS, answer, journaled, without_times
from tests.servers.scripted import ScriptedServer

_PRELOADED = (
    *("assay.cli.run", "assay.cli.output", "assay.evaluation", "assay.reports.progress", "assay.reports.table"),
    *(
        "datasets",
        "httptools",
        "lm_eval.evaluator_utils",
        "lm_eval.tasks",
        "rich.console",
        "tests.evaluation.test_flow",
    ),
)
_MOST_KILLS = 3
_PATIENCE = 120.0
"""Seconds after which a process counts as hanging."""
_MOMENTS = ("any moment", "during a sync", "in a half-written record", "while results are written")
_LAST_BYTES = 2048

Place = tuple[str, int]
"""Task and doc_id."""


@dataclass(frozen=True)
class Kill:
    """When a process is to die."""

    moment: str
    """One of ``_MOMENTS``."""
    seed: int
    longest: float
    """Seconds that a whole run takes."""


@dataclass
class Tally:
    """What happened, and what should not have."""

    processes: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    ended_before_kill: int = 0
    damaged: Counter[str] = field(default_factory=Counter)
    asked_again: int = 0
    """Answers that damage took from journals, asked for again as they should be."""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Untouched:
    """The run that all others must equal."""

    folder: Path
    results: dict[str, Any]
    samples: dict[str, str]
    prompts: dict[str, Place]
    """Messages of a request as JSON -> whose they are."""
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    multiprocessing.set_start_method("forkserver")
    multiprocessing.set_forkserver_preload(list(_PRELOADED))
    scratch = Path(tempfile.mkdtemp(prefix="assay-chaos-"))
    started = time.monotonic()
    tally = Tally()
    with ScriptedServer(answer=answer, models=["scripted"], latency=0.005) as server:
        harness = Harness(server, run_untouched(server, scratch / "untouched"), tally)
        for number in range(arguments.runs):
            harness.kill_and_resume(scratch / f"killed-{number}", random.Random(f"{arguments.seed} kill {number}"))
            _say(f"{number + 1} of {arguments.runs} runs killed and resumed", number, tally)
        for number in range(arguments.damages):
            harness.damage_and_resume(scratch / f"damaged-{number}", random.Random(f"{arguments.seed} cut {number}"))
            _say(f"{number + 1} of {arguments.damages} journals damaged and resumed", number, tally)
    _summarise(arguments.runs, tally, time.monotonic() - started)
    if tally.problems:
        sys.exit(f"{len(tally.problems)} problems; see {scratch}")
    shutil.rmtree(scratch)


class Harness:
    """Runs, kills and judges."""

    def __init__(self, server: ScriptedServer, untouched: Untouched, tally: Tally) -> None:
        self.server = server
        self.untouched = untouched
        self.tally = tally

    def kill_and_resume(self, folder: Path, chance: random.Random) -> None:
        """Kill a run up to three times, then let it end."""
        for _ in range(chance.randint(1, _MOST_KILLS)):
            kill = Kill(chance.choice(_MOMENTS), chance.getrandbits(32), self.untouched.seconds)
            if self._go_on(folder, kill) == -signal.SIGKILL:
                self.tally.kills[kill.moment] += 1
            if _is_finished(folder):
                # The same command again would be a new run.
                self.tally.ended_before_kill += 1
                break
        else:
            self._go_on(folder, None)
        self._judge(folder)

    def damage_and_resume(self, folder: Path, chance: random.Random) -> None:
        """Damage the journal of a run that was about to write its results, then let it end."""
        (whole,) = find_journals(self.untouched.folder / "scripted" / "journal")
        content = whole.read_bytes()
        content = content[: content.index(b'{"kind":"finalised"') - 19]
        start = len(content) - _LAST_BYTES if chance.random() < 0.5 else 0
        place = chance.randrange(start, len(content))
        if chance.random() < 0.5:
            self.tally.damaged["cut"] += 1
            content = content[:place]
        else:
            self.tally.damaged["flipped"] += 1
            flipped = bytes(byte ^ chance.randrange(1, 256) for byte in content[place : place + chance.randint(1, 16)])
            content = content[:place] + flipped + content[place + len(flipped) :]
        journal = folder / "scripted" / "journal" / whole.name
        journal.parent.mkdir(parents=True)
        journal.write_bytes(content)
        self.tally.asked_again += len(self.untouched.prompts) - len(journaled(folder))
        self._go_on(folder, None)
        self._judge(folder)

    def _go_on(self, folder: Path, kill: Kill | None) -> int | None:
        """One process: its exit code. What it asks is held against what the journal held before."""
        kept = journaled(folder)
        before = len(self.server.requests)
        process = _start(self.server.url, folder, kill)
        if kill is not None and kill.moment == "any moment":
            process.join(random.Random(kill.seed).uniform(0.0, kill.longest))
            process.kill()
        process.join(_PATIENCE)
        self.tally.processes += 1
        if process.exitcode is None:
            process.kill()
            process.join()
            self._problem(folder, f"hung for {_PATIENCE:g} s")
        elif process.exitcode and (kill is None or process.exitcode != -signal.SIGKILL):
            self._problem(folder, f"ended with {process.exitcode}")
        asked = Counter(self._place(request.body) for request in self.server.requests[before:])
        if again := asked.keys() & kept:
            self._problem(folder, f"asked again for {sorted(again)}, which the journal held")
        if kill is None and asked != Counter(set(self.untouched.prompts.values()) - kept):
            self._problem(folder, "did not ask once for each answer that the journal did not hold")
        return process.exitcode

    def _judge(self, folder: Path) -> None:
        results, samples = read_results(folder)
        if len(results) != 1:
            self._problem(folder, f"{len(results)} results files")
        elif results[0] != self.untouched.results or samples != self.untouched.samples:
            self._problem(folder, "other results than an untouched run's")
        elif left := [path.name for path in folder.rglob("*.partial")]:
            self._problem(folder, f"left behind {left}")
        elif not _is_finished(folder):
            self._problem(folder, "not one journal that is finished")
        elif "Traceback" in _log(folder).read_text():
            self._problem(folder, "a traceback")
        else:
            shutil.rmtree(folder)
            _log(folder).unlink()

    def _place(self, body: dict[str, Any]) -> Place:
        return self.untouched.prompts[_prompt(body["messages"])]

    def _problem(self, folder: Path, what: str) -> None:
        self.tally.problems.append(f"{folder.name}: {what}")


def run_untouched(server: ScriptedServer, folder: Path) -> Untouched:
    warm_up = _start(server.url, folder.with_name("warm-up"), None)
    warm_up.join(_PATIENCE)
    started = time.monotonic()
    process = _start(server.url, folder, None)
    process.join(_PATIENCE)
    seconds = time.monotonic() - started
    if process.exitcode != 0:
        sys.exit(f"the run that nobody touched failed:\n{_log(folder).read_text()}")
    (results,), samples = read_results(folder)
    lines = [json.loads(line) for text in samples.values() for line in text.splitlines()]
    asked = {
        _prompt(json.loads(line["arguments"]["gen_args_0"]["arg_0"][0])): line["doc"]["question"] for line in lines
    }
    prompts = {prompt: (question.partition(":")[0], _doc_id(question, lines)) for prompt, question in asked.items()}
    return Untouched(folder, results, samples, prompts, seconds)


def read_results(folder: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """All results files but for their times, and the texts of all samples files by task."""
    files = sorted(folder.glob("scripted/results_*.json"))
    samples = {path.name.split("_")[1]: path.read_text() for path in folder.glob("scripted/samples_*.jsonl")}
    return [without_times(json.loads(file.read_text())) for file in files], samples


def _is_finished(folder: Path) -> bool:
    """Whether the run's one journal says that its results are written."""
    found = find_journals(folder / "scripted" / "journal")
    return len(found) == 1 and check(found[0]).finished


def _doc_id(question: str, lines: list[dict[str, Any]]) -> int:
    return int(next(line["doc_id"] for line in lines if line["doc"]["question"] == question))


def _prompt(messages: Any) -> str:
    return json.dumps(messages, ensure_ascii=False)


def _log(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def _start(url: str, folder: Path, kill: Kill | None) -> BaseProcess:
    process = multiprocessing.Process(target=_run, args=(url, str(folder), str(_log(folder)), kill), daemon=True)
    process.start()
    return process


def _run(url: str, folder: str, log: str, kill: Kill | None) -> None:
    """What a child does: the command line's own code, with a trap set for it."""
    from assay.cli import main as assay

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if kill is not None:
        _set_trap(kill.moment, random.Random(kill.seed))
    where = ["--base-url", url, "--model", "scripted", "--include-path", str(TASKS), "--output-dir", folder]
    assay(["run", "counting,naming", *where, "--concurrency", "4"])


def _set_trap(moment: str, chance: random.Random) -> None:
    if moment == "during a sync":
        _die_during_sync(chance)
    elif moment == "in a half-written record":
        _die_in_write(chance)
    elif moment == "while results are written":
        _die_while_writing_results(chance)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_during_sync(chance: random.Random) -> None:
    """At one of the first syncs, of the journal or of results, at its beginning or a little later."""
    left = chance.randint(0, 4)

    def armed(sync: Any) -> Any:
        def call(descriptor: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                threading.Timer(chance.uniform(0.0, 0.005), _die).start()
            sync(descriptor)

        return call

    os.fsync, os.fdatasync = armed(os.fsync), armed(os.fdatasync)


def _die_in_write(chance: random.Random) -> None:
    """After a part of a record, as when the kernel is interrupted between two pages."""
    left = chance.randint(0, 125)
    write = os.pwrite

    def torn(descriptor: int, content: memoryview, offset: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            write(descriptor, content[: chance.randrange(len(content))], offset)
            _die()
        return write(descriptor, content, offset)

    os.pwrite = torn  # type: ignore[assignment]


def _die_while_writing_results(chance: random.Random) -> None:
    """When one of the three files is opened under its passing name, a little later, or just before it is renamed."""
    left = chance.randint(0, 5)
    delay = chance.choice((0.0, chance.uniform(0.0, 0.003)))

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in ("open", "os.rename") or not str(arguments[0]).endswith(".partial"):
            return
        left -= 1
        if left < 0:
            if delay:
                threading.Timer(delay, _die).start()
            else:
                _die()

    sys.addaudithook(watch)


def _say(what: str, number: int, tally: Tally) -> None:
    if number % 10 == 9:
        print(f"{what}, {len(tally.problems)} problems", file=sys.stderr, flush=True)


def _summarise(runs: int, tally: Tally, seconds: float) -> None:
    print(f"{runs} runs, {tally.kills.total()} kills, {tally.processes} processes, {seconds:.0f} s")
    for moment in _MOMENTS:
        print(f"  {tally.kills[moment]:4} killed {moment}")
    print(f"  {tally.ended_before_kill:4} runs had written their results before their last kill")
    print(f"{tally.damaged.total()} journals damaged: {tally.damaged['cut']} cut, {tally.damaged['flipped']} flipped")
    print(f"  {tally.asked_again:4} answers lost by it, and asked for again")
    print(f"{len(tally.problems)} problems")
    for problem in tally.problems:
        print(f"  {problem}")


if __name__ == "__main__":
    main()
