"""Rerun noise is measured on real reruns, and the margin proposed leaves room for it."""

from __future__ import annotations

import itertools
import json
import random
import signal
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from assay.cli import main
from assay.cli.calibrate import advice_lines, calibrate
from assay.errors import RunInterrupted
from assay.gate.calibrate import Calibration, noise_of, proposed_margin
from assay.gate.calibrate import calibrate as measure
from assay.progress import Progress
from assay.runs.files import read_run
from assay.types import ModelSpec, Specification, TaskOptions
from benchmarks.simulate_margins import SETTINGS, Setting, simulate
from tests.gate.conftest import TASKS
from tests.result_files import write_run
from tests.servers.scripted import Fault, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.runs.record import RecordedRun
    from assay.types import Response, Sample


def noise(folder: Path, flaky: bool) -> dict[str, Any]:
    calls = itertools.count()

    def answer(body: dict[str, Any]) -> str:
        """Right, or where flaky wrong for a tenth of the questions of every run."""
        question = body["messages"][-1]["content"]
        run = next(calls) // 60
        if flaky and random.Random(f"{run} {question}").random() < 0.1:
            return "I cannot say"
        return f"The answer is {sum(int(word) for word in question.split() if word.isdigit())}"

    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        options = [
            "--base-url",
            server.url,
            "--model",
            "scripted",
            "--include-path",
            str(TASKS),
            "--runs",
            "3",
            "--output-dir",
            str(folder),
        ]
        done = CliRunner().invoke(calibrate, ["counting", *options, "--concurrency", "1", "--json"])
        assert done.exit_code == 0, done.output
        assert server.count == 180
    (row,) = json.loads(done.stdout)
    return dict(row)


def test_a_steady_server_flips_nothing(tmp_path: Path) -> None:
    row = noise(tmp_path, flaky=False)
    assert row["values"] == [1.0, 1.0, 1.0]
    assert row["flip_rate"] == row["deviation"] == 0.0
    assert 0 < row["deviation_at_most"] < 0.03
    assert row["margin"] == proposed_margin(row["deviation_at_most"])


def test_a_flaky_server_gets_a_wider_margin(tmp_path: Path) -> None:
    row = noise(tmp_path, flaky=True)
    assert 0.05 < row["flip_rate"] < 0.35
    assert row["deviation"] == pytest.approx(sqrt(row["flip_rate"] / 60), rel=0.2)
    assert row["deviation"] < row["deviation_at_most"]
    assert row["margin"] >= 3 * row["deviation_at_most"]


@pytest.mark.parametrize(
    ("share", "said"), [(0.2, "samples failed, and the margins"), (1.0, "nothing can be compared")]
)
def test_samples_that_fail_are_said_and_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], share: float, said: str
) -> None:
    with ScriptedServer(models=["scripted"], faults=[Fault("http_400", fraction=share)]) as server:
        where = ["--base-url", server.url, "--model", "scripted", "--include-path", str(TASKS)]
        with pytest.raises(SystemExit) as ended:
            main(["calibrate", "counting", *where, "--limit", "20", "--runs", "2", "--output-dir", str(tmp_path)])
    assert ended.value.code == 4
    assert said in capsys.readouterr().err


def test_that_a_part_of_the_documents_was_asked_is_said_beside_the_margins(
    server: ScriptedServer, tmp_path: Path
) -> None:
    where = ["--base-url", server.url, "--model", "scripted", "--include-path", str(TASKS), "--limit", "10"]
    done = CliRunner().invoke(calibrate, ["both", *where, "--runs", "2", "--output-dir", str(tmp_path)])
    assert "measured on 20 of 120 documents (--limit 10)" in done.stdout


class StopsAfter(Progress):
    """Sends SIGTERM when so many samples are complete."""

    def __init__(self, samples: int) -> None:
        self.left = samples

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGTERM)


def test_a_calibration_goes_on_where_it_was_stopped_and_starts_anew_once_it_is_told(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """Runs that it had finished are not asked again; none is ever the answers of another, or of an earlier one."""
    specification = Specification(
        tasks=("counting",),
        model=ModelSpec(base_url=server.url, model="scripted", concurrency=1),
        options=TaskOptions(include_path=str(TASKS)),
        output_dir=str(tmp_path),
    )
    progress = StopsAfter(60 + 20)
    with pytest.raises(RunInterrupted, match="run the same command again to go on"):
        measure(specification, 3, progress)
    assert 80 <= server.count < 120
    told: list[Calibration] = []
    with pytest.raises(BrokenPipeError):
        measure(specification, 3, on_result=raises(BrokenPipeError))
    asked = server.count
    assert 180 <= asked <= 181  # at most the request on its way when it was stopped was asked twice
    assert measure(specification, 3, on_result=told.append) is told[0]
    assert server.count == asked
    assert told[0].noise[0].n == 60
    assert len(set(told[0].results_files)) == 3
    measure(specification, 3)
    assert server.count == asked + 180


def raises(error: type[Exception]) -> Callable[[Any], None]:
    def on_result(_: Any) -> None:
        raise error

    return on_result


def test_one_run_shows_nothing() -> None:
    done = CliRunner().invoke(calibrate, ["t", "--base-url", "http://x", "--model", "m", "--runs", "1"])
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("deviation", "margin"), [(0.00381, 0.012), (0.0666, 0.20), (0.8, 2.4), (41.0, 130.0), (0.01, 0.03)]
)
def test_the_margin_is_rounded_up_to_two_digits(deviation: float, margin: float) -> None:
    assert proposed_margin(deviation) == margin


def runs_of(folder: Path, sizes: dict[str, int], scale: float = 1.0) -> list[RecordedRun]:
    """Three runs of a group whose tasks weigh alike; in every task the first of each ten documents varies."""
    runs = []
    for number in range(3):
        scores = {
            task: [scale * float(i % 10 != 0 or (i // 10 + number) % 2) for i in range(size)]
            for task, size in sizes.items()
        }
        stamp = f"2026-01-0{number + 1}T00-00-00.000001"
        runs.append(read_run(write_run(folder, scores, group="g", by_size=False, stamp=stamp)))
    return runs


def test_the_margin_of_a_group_is_that_of_its_own_average(tmp_path: Path) -> None:
    """Each task's mean varies as 1/size, and all four count alike: not as 1,270 documents in one heap."""
    group, *tasks = noise_of(runs_of(tmp_path, {"a": 20, "b": 50, "c": 200, "d": 1000}))
    assert (group.task, group.is_group, group.n) == ("g", True, 1270)
    assert group.deviation == pytest.approx(sqrt(sum(task.deviation**2 for task in tasks)) / 4)
    assert 0.05 < group.margin < 0.1
    assert max(tasks, key=lambda task: task.deviation).task == "a" == group.mostly_of


def test_the_margin_has_room_for_one_answer_where_none_was_seen_to_change(tmp_path: Path) -> None:
    scores = {"a": [1.0] * 3 + [0.0] * 4, "b": [1.0] * 50, "c": [1.0] * 400}
    stamps = [f"2026-01-0{day}T00-00-00.000001" for day in (1, 2, 3)]
    runs = [read_run(write_run(tmp_path, scores, group="g", by_size=False, stamp=stamp)) for stamp in stamps]
    group, *tasks = noise_of(runs)
    assert group.deviation == 0.0
    assert group.margin == 0.048  # rounded up from 1/7 of a third
    assert {task.task: task.margin >= 1 / task.n for task in tasks} == {"a": True, "b": True, "c": True}


def test_the_margin_has_the_scale_of_the_metric(tmp_path: Path) -> None:
    unit = noise_of(runs_of(tmp_path / "unit", {"a": 20, "b": 200}))
    scaled = noise_of(runs_of(tmp_path / "scaled", {"a": 20, "b": 200}, scale=40.0))
    for one, other in zip(unit, scaled, strict=True):
        assert other.deviation_at_most == pytest.approx(40 * one.deviation_at_most)


def test_a_subtask_of_few_documents_is_named_with_what_to_do(tmp_path: Path) -> None:
    lines = advice_lines(noise_of(runs_of(tmp_path, {"tiny": 5, "large": 1000})))
    assert "tiny makes most of the noise" in lines[0]
    assert 'task = "g"' in lines[-1]
    assert "margin = " in lines[-1]


def test_documents_that_failed_once_take_part_with_the_runs_they_have(tmp_path: Path) -> None:
    full = runs_of(tmp_path, {"a": 30})
    task = full[2].tasks["a"]
    scores = {key: values[1:] for key, values in task.scores.items()}
    without = msgspec.structs.replace(
        task, doc_ids=task.doc_ids[1:], documents=task.documents[1:], prompts=task.prompts[1:], scores=scores
    )
    last = msgspec.structs.replace(full[2], tasks={"a": without})
    (found,) = [row for row in noise_of([*full[:2], last]) if not row.is_group]
    assert found.n == 30
    assert found.flip_rate == pytest.approx(3 / 30)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: f"{setting.name}, {setting.noise}")
def test_a_healthy_server_seldom_fails_its_own_margin(setting: Setting) -> None:
    rates = simulate(setting, calibrations=150, gates=20, seed=1)
    assert rates.failed < 0.015


def test_the_simulation_shows_where_flips_of_one_heap_mislead() -> None:
    """Else it could not show that the margins hold."""
    rates = [simulate(setting, calibrations=60, gates=30, seed=1) for setting in SETTINGS if len(setting.sizes) > 1]
    assert max(each.before for each in rates) > 0.09


def test_one_document_gives_no_margin_that_no_server_could_fail(tmp_path: Path) -> None:
    (alone,) = noise_of(runs_of(tmp_path, {"a": 1})[:2])[1:]
    assert (alone.margin, alone.met_by_any_score) == (1.0, True)
    large = noise_of(runs_of(tmp_path / "large", {"b": 200}))[1]
    assert not large.met_by_any_score
    too_few, example = advice_lines([alone, large])
    assert "exact_match,get-answer: too few documents (1) for a margin" in too_few
    assert 'task = "b"' in example


@pytest.mark.parametrize("deviation", [5e-324, 1e-310, 2.3e-4, 1e307])
def test_a_margin_is_never_below_three_deviations(deviation: float) -> None:
    assert proposed_margin(deviation) >= 3 * deviation * (1 - 1e-10)
