"""The live table: what it shows of a run that is going on, and that it shows it while the run goes on."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from assay.checks.sequential import SequentialCheck
from assay.evaluation import evaluate
from assay.evaluation.snapshot import RunSnapshot
from assay.progress import Standing
from assay.reports.live import LiveTable
from assay.results.check_results import CheckResult
from assay.stats.intervals import wilson
from assay.types import (
    Answer,
    Check,
    EarlyStopping,
    Failure,
    FailureCause,
    ModelSpec,
    Request,
    Sample,
    Specification,
    TaskOptions,
)
from tests.servers.scripted import ScriptedServer

TASKS = Path(__file__).parent.parent / "evaluation_tasks"


class Fixed:
    def __init__(self, *standings: Standing, checks: tuple[str, ...] = ()) -> None:
        self._standings, self._checks = standings, checks

    def standings(self, tasks: Sequence[str]) -> list[Standing]:
        return [standing for standing in self._standings if standing.task in tasks]

    def checks(self) -> tuple[str, ...]:
        return self._checks


def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=150, color_system=None)


def picture(table: LiveTable, width: int = 150) -> str:
    shown = Console(file=io.StringIO(), width=width)
    shown.print(table._picture())
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def written(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def complete(table: LiveTable, task: str, count: int, *, failed: bool = False) -> None:
    for doc_id in range(count):
        response = Failure(cause=FailureCause.RESET, message="") if failed else Answer(text="x")
        table.responded(Request(task, doc_id, 0, 0, "generate_until", b"{}", f"{task}-{doc_id}"), response)
        table.completed(Sample(task, doc_id, {}, [], []), [response])


def test_tasks_scores_checks_and_rate_are_shown() -> None:
    table = LiveTable(console())
    table.loaded({"sums": 100, "walks\x1b": 5}, 2, Path("run.journal"))
    table.limited(64)
    table.watching(
        Fixed(
            Standing("sums", "exact_match,none", 0.5, wilson(2, 4), 4, 0),
            Standing("walks\x1b", None, None, None, 0, 1),
            checks=("exact_match,none >= 0.4: undecided",),
        )
    )
    complete(table, "sums", 70)
    complete(table, "walks\x1b", 1, failed=True)
    text = picture(table)
    assert "70/100" in text
    assert "0.5000  0.1500 – 0.8500" in text
    assert "walks\\x1b" in text
    assert "check  exact_match,none >= 0.4: undecided" in text
    for words in ("71 of 105 samples", "requests/s", "64 at once", "left", "1 failed"):
        assert words in text, words


def test_a_narrow_terminal_cuts_names_but_no_figures() -> None:
    table = LiveTable(console())
    table.loaded({"mmlu_pro_computer_science_with_a_long_name": 1000}, 0, Path("run.journal"))
    standing = Standing(
        "mmlu_pro_computer_science_with_a_long_name", "exact_match,custom-extract", 0.5, wilson(2, 4), 4, 7
    )
    table.watching(Fixed(standing))
    complete(table, "mmlu_pro_computer_science_with_a_long_name", 100)
    text = picture(table, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert "mmlu" in text
    for figure in ("100/1000", "0.5000", "0.1500 – 0.8500", " 7"):
        assert figure in text


def test_of_many_tasks_those_under_way_are_shown() -> None:
    table = LiveTable(console())
    names = [f"task{number:02}" for number in range(30)]
    table.loaded(dict.fromkeys(names, 2), 0, Path("run.journal"))
    table.watching(Fixed(*(Standing(name, None, None, None, 0, 0) for name in names)))
    for name in names[:25]:
        complete(table, name, 2)
    complete(table, "task29", 1)
    text = picture(table)
    assert "task29" in text
    assert "task25" not in text
    assert "… and 18 more; 25 of 30 tasks are done" in text


def test_one_line_stays_of_it() -> None:
    screen = console()
    with LiveTable(screen) as table:
        table.loaded({"sums": 3}, 0, Path("run.journal"))
        table.noted("a server is set aside\x1b[2J")
        complete(table, "sums", 3)
    lines = written(screen).splitlines()
    assert "sums: 3 samples" in written(screen)
    assert "a server is set aside\\x1b[2J" in written(screen)
    assert "3 of 3 samples, " in lines[-1]


class Looking(LiveTable):
    """Looks after every sample, as a fast clock would."""

    pictures: list[str]

    def completed(self, sample: Sample, responses: Any) -> None:
        super().completed(sample, responses)
        self.pictures.append(picture(self))


def watched(tmp_path: Path, **more: Any) -> list[str]:
    table = Looking(console())
    table.pictures = []
    with ScriptedServer(answer=lambda _: "The answer is 8", models=["scripted"]) as server, table:
        evaluate(
            Specification(
                tasks=("counting", "naming") if not more.get("early_stopping") else ("counting",),
                model=ModelSpec(base_url=server.url, model="scripted", concurrency=4),
                options=TaskOptions(include_path=str(TASKS)),
                output_dir=str(tmp_path),
                **more,
            ),
            table,
        )
    return table.pictures


def test_a_real_run_is_followed(tmp_path: Path) -> None:
    check = Check(metric="exact_match,get-answer", task="counting", min=0.5)
    pictures = watched(tmp_path, checks=(check,))
    assert len(pictures) == 120
    assert "0.0500" in pictures[-1] or "0.0333" in pictures[-1] or "0.0167" in pictures[-1]
    assert "on 60 documents so far" in pictures[-1]
    assert "60/60" in pictures[-1]


def test_looking_on_computes_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread looks on: what a verdict takes may change meanwhile, and a forecast takes its time."""
    verdict, looking = SequentialCheck.result, threading.Event()

    def result(check: SequentialCheck) -> CheckResult:
        assert not looking.is_set()
        return verdict(check)

    def look(snapshot: RunSnapshot) -> list[str]:
        looking.set()
        lines = told(snapshot)
        looking.clear()
        return lines

    told = RunSnapshot.checks
    monkeypatch.setattr(SequentialCheck, "result", result)
    monkeypatch.setattr(RunSnapshot, "checks", look)
    check = Check(metric="exact_match,get-answer", min=0.5)
    pictures = watched(tmp_path, checks=(check,), early_stopping=EarlyStopping(order_seed=1))
    assert re.search(r"undecided after \d+ documents, 0\.\d{4} so far", pictures[2])


def test_a_check_that_may_end_the_run_is_followed(tmp_path: Path) -> None:
    check = Check(metric="exact_match,get-answer", min=0.5)
    pictures = watched(tmp_path, checks=(check,), early_stopping=EarlyStopping(order_seed=1))
    assert "undecided after 0 documents" in pictures[0] or "undecided after 1 documents" in pictures[0]
    assert "FAIL after" in pictures[-1]
    assert " – " not in pictures[-1].splitlines()[1]
