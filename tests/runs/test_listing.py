"""Which runs there are, by which names they are taken, and which journals nobody needs any more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.errors import FileFormatError
from assay.evaluation import evaluate
from assay.runs.files import named_run, read_run
from assay.runs.listing import list_journals, list_runs
from assay.runs.samples import results_file_of
from assay.types import Check, ModelSpec, Specification, TaskOptions
from tests.gate.conftest import KEY, TASKS, right, wrong
from tests.servers.scripted import Fault, ScriptedServer


def run(output: Path, answer: Any, model: str = "scripted", faults: tuple[Fault, ...] = (), **fields: Any) -> Path:
    with ScriptedServer(answer=answer, models=[model], faults=faults) as server:
        evaluation = evaluate(
            Specification(
                tasks=("counting",),
                model=ModelSpec(base_url=server.url, model=model, max_attempts=1),
                options=TaskOptions(include_path=str(TASKS)),
                output_dir=str(output),
                **fields,
            )
        )
    return evaluation.results_file


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs of two models: right, wrong with a check, and one with failed samples."""
    folder = tmp_path_factory.mktemp("three") / "results"
    run(folder, right)
    run(folder, wrong, checks=(Check(metric=KEY, min=0.5),))
    run(folder, right, model="other", faults=(Fault("http_400", fraction=0.3),))
    return folder


def assay(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_runs_are_listed_newest_first_with_what_they_came_to(three: Path) -> None:
    newest, second, first = list_runs(three)
    assert [newest.model, second.model, first.model] == ["other", "scripted", "scripted"]
    assert [listed.verdict for listed in (newest, second, first)] == [None, "fail", None]
    assert newest.state.endswith(" failed")
    assert (second.state, first.state) == ("whole", "whole")
    assert [score.value for score in second.scores] == [0.0]
    assert first.tasks == ("counting",)
    assert all(listed.bytes > 1000 for listed in (newest, second, first))


def test_the_table_names_runs_as_other_commands_take_them(three: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert assay("runs", str(three)) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "last", "last~1", "last~2"]
    assert assay("runs", str(three), "--json") == 0
    assert len([json.loads(line) for line in capfd.readouterr().out.splitlines()]) == 3


def test_names_stand_for_runs(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = list_runs(three)
    monkeypatch.chdir(three.parent)
    for number, each in enumerate(listed):
        name = f"last~{number}" if number else "last"
        assert named_run(name).resolve() == Path(each.file).resolve()
        assert named_run(three / name) == Path(each.file)
        assert named_run(each.time[:-1]).resolve() == Path(each.file).resolve()
    assert read_run("last~1").model == "scripted"
    assert results_file_of(f"{three}/scripted/last~1") == Path(listed[2].file)


@pytest.mark.parametrize(
    ("name", "says"),
    [("last~3", "holds 3; assay runs"), ("2026", "there is no run 2026"), ("2001-01", "no runs in")],
)
def test_names_that_stand_for_none_are_refused(
    three: Path, name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(three.parent)
    with pytest.raises(FileFormatError, match=says):
        read_run(name)


def test_a_time_that_several_runs_share_is_refused(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(three.parent)
    with pytest.raises(FileFormatError, match="3 runs in results are of 20"):
        read_run(list_runs(three)[0].time[:10])


def test_a_file_that_is_called_so_comes_first(three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(list_runs(three)[0].file, "last")
    assert named_run("last") == Path("last")


def test_only_journals_of_runs_with_all_results_are_removed(
    three: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    shutil.copytree(three, folder)
    assert [journal.is_finished for journal in list_journals(folder)] == [False, True, True]
    assert assay("clean", str(folder)) == 0
    assert len(list_journals(folder)) == 3
    assert "--yes removes them" in capfd.readouterr().err
    assert assay("clean", str(folder), "--yes") == 0
    assert [Path(journal.file).parts[-3] for journal in list_journals(folder)] == ["other"]
    assert len(list_runs(folder)) == 3
    assert "removed 2 journals" in capfd.readouterr().err


def test_a_journal_in_use_is_kept(three: Path, tmp_path: Path) -> None:
    import fcntl

    from assay.journal.files import remove_finished

    folder = tmp_path / "results"
    shutil.copytree(three, folder)
    journal = next(Path(each.file) for each in list_journals(folder) if each.is_finished)
    with journal.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not remove_finished(journal)
    assert remove_finished(journal)


@pytest.mark.parametrize("command", ["runs", "clean"])
def test_no_folder_is_one_line(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert assay(command, str(tmp_path / "nowhere")) == 2
    assert len(capfd.readouterr().err.strip().splitlines()) == 1


def test_a_damaged_file_is_listed_as_that(three: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    shutil.copytree(three, folder)
    Path(list_runs(folder)[0].file).write_text("{")
    assert "cannot" in list_runs(folder)[0].state or "damaged" in list_runs(folder)[0].state


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with ScriptedServer(answer=right, models=["scripted"]) as server:
        return evaluate(
            Specification(
                tasks=("both",),
                model=ModelSpec(base_url=server.url, model="scripted"),
                options=TaskOptions(include_path=str(TASKS)),
                output_dir=str(tmp_path_factory.mktemp("group")),
            )
        ).results_file


def test_some_tasks_alone_are_compared_kept_and_explained(
    group: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = str(group)
    assert assay("compare", run, run, "--task", "naming", "--json") == 0
    assert {change["task"] for change in json.loads(capfd.readouterr().out)[0]["changes"]} == {"naming"}
    assert assay("compare", run, run, "--task", "both", "--json") == 0
    compared = {change["task"] for change in json.loads(capfd.readouterr().out)[0]["changes"]}
    assert compared == {"both", "counting", "naming"}
    assert assay("baseline", "save", run, str(tmp_path / "b.json"), "--task", "counting") == 0
    assert list(read_run(tmp_path / "b.json").tasks) == ["counting"]
    assert assay("triage", run, "--task", "naming", "--json") == 0


@pytest.mark.parametrize("command", [["compare"], ["triage"], ["baseline", "save"]])
def test_a_task_that_the_run_lacks_is_named(
    command: list[str], group: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = {"compare": [str(group)], "baseline": [str(tmp_path / "b.json")], "triage": []}[command[0]]
    assert assay(*command, str(group), *other, "--task", "gsm8k") == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert "has no task 'gsm8k'" in line
