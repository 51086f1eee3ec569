"""A run's answers scored again: the same where nothing changed, and what differs where something did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.errors import FileFormatError, UnsupportedTaskError, UsageError
from assay.evaluation import Evaluation, evaluate
from assay.reports.rescored import rescored_lines
from assay.rescoring.rescore import score
from assay.results.reading import read_results
from assay.types import Check, EarlyStopping, ModelSpec, Specification, TaskOptions
from tests.result_files import read_samples, write_run
from tests.servers.scripted import Fault, ScriptedServer

TASKS = Path(__file__).parents[1] / "evaluation_tasks"


def answer(body: dict[str, Any]) -> str:
    """Right every other time; what the task's filter misses the other times."""
    numbers = [int(word) for word in body["messages"][-1]["content"].split() if word.isdigit()]
    return f"The answer is {sum(numbers)}" if numbers[0] % 2 else f"It is {sum(numbers)}"


def run(folder: Path, *tasks: str, **more: Any) -> Evaluation:
    faults = more.pop("faults", [])
    with ScriptedServer(answer=answer, models=["scripted"], faults=faults) as server:
        return evaluate(
            Specification(
                tasks=tasks,
                model=ModelSpec(base_url=server.url, model="scripted", concurrency=8),
                options=TaskOptions(include_path=str(TASKS), limit=40),
                output_dir=str(folder),
                **more,
            )
        )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return run(tmp_path_factory.mktemp("run"), "both", faults=[Fault("http_400", fraction=0.1)])


def changed_tasks(folder: Path, old: str, new: str) -> str:
    """The tasks with one passage of their shared template replaced."""
    shutil.copytree(TASKS, folder / "tasks")
    template = folder / "tasks" / "_template_yaml"
    text = template.read_text()
    assert old in text
    template.write_text(text.replace(old, new))
    return str(folder / "tasks")


def test_the_same_code_gives_the_same_results(both: Evaluation, tmp_path: Path) -> None:
    again = score(both.results_file, output_dir=str(tmp_path))
    assert not again.differences
    assert not again.changed_prompts
    assert not again.versions
    assert again.results_file is not None
    written = json.loads(again.results_file.read_text())
    assert json.loads(json.dumps(read_results(again.results_file).as_json())) == written
    for section in ("results", "groups", "group_subtasks", "n-samples", "task_hashes", "versions", "n-shot"):
        assert written[section] == both.results[section], section
    assert len(written["assay"]["failures"]) == len(both.failures) > 0
    assert sum(again.left_out.values()) == len(both.failures)


def test_nothing_is_kept_unless_asked_for(both: Evaluation) -> None:
    before = sorted(both.results_file.parent.rglob("*"))
    again = score(both.results_file)
    assert again.results_file is None
    assert again.comparison is not None
    assert again.comparison.candidate == "the same answers, scored again"  # no file that is gone by now
    assert sorted(both.results_file.parent.rglob("*")) == before
    assert not any("same run" in remark for remark in again.comparison.remarks)


def test_what_was_kept_still_knows_the_journal(both: Evaluation, tmp_path: Path) -> None:
    again = score(both.results_file, output_dir=str(tmp_path))
    assert again.results_file is not None
    answers = [answer for sample in read_samples(again.results_file) for answer in sample.answers]
    assert answers
    assert all(answer.finish_reason == "stop" for answer in answers)


def test_another_filter_scores_the_same_answers(both: Evaluation, tmp_path: Path) -> None:
    tasks = changed_tasks(tmp_path, "answer is (", "is (")
    again = score(both.results_file, include_path=tasks)
    first = again.differences[0]
    assert first.before == pytest.approx(0.5, abs=0.1)
    assert first.now == 1.0
    assert not again.changed_prompts
    assert again.comparison is not None
    assert {flip.change for flip in again.comparison.flips} == {"gained"}
    flip = again.comparison.flips[0]
    assert flip.before is not None
    assert flip.after is not None
    assert flip.after.extracted == flip.after.target != flip.before.extracted
    assert any("filter_list" in change for changes in again.comparison.mismatches.values() for change in changes)


def test_a_changed_prompt_is_counted(both: Evaluation, tmp_path: Path) -> None:
    tasks = changed_tasks(tmp_path, "doc_to_text: ", "doc_to_text: Now ")
    again = score(both.results_file, include_path=tasks)
    scored = {score.task: score.n for score in again.scores}
    assert again.changed_prompts == {
        name: scored[name] + again.left_out.get(name, 0) for name in ("counting", "naming")
    }
    assert not again.differences


def test_one_task_by_another(both: Evaluation, tmp_path: Path) -> None:
    tasks = Path(changed_tasks(tmp_path, "answer is (", "is ("))
    (tasks / "recounting.yaml").write_text((tasks / "counting.yaml").read_text().replace("counting", "recounting", 1))
    again = score(both.results_file, tasks={"counting": "recounting"}, include_path=str(tasks))
    assert [score.task for score in again.scores] == ["recounting"]
    assert [score.value for score in again.scores] == [1.0]
    assert again.comparison is not None
    assert [change.task for change in again.comparison.changes] == ["counting"]
    assert {found.task for found in again.differences} == {"counting"}
    assert not again.changed_prompts


def test_a_run_that_stopped_early_is_scored_as_far_as_it_went(tmp_path: Path) -> None:
    check = Check(metric="exact_match,get-answer", min=0.05)
    early = run(tmp_path, "counting", checks=(check,), early_stopping=EarlyStopping(order_seed=1))
    assert early.stopped_early is not None
    again = score(early.results_file, output_dir=str(tmp_path / "again"))
    assert not again.differences
    assert again.scores == early.scores
    assert again.results_file is not None
    assert json.loads(again.results_file.read_text())["results"] == early.results["results"]
    assert again.comparison is not None
    assert again.comparison.candidate == str(again.results_file)
    unkept = score(early.results_file).comparison
    assert unkept is not None
    assert unkept.candidate == "the same answers, scored again"
    assert unkept.remarks == ()  # that both are the same run, stopped early, is no news


def test_what_cannot_be_scored_again_is_refused(both: Evaluation, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no task 'walking'; it has counting, naming"):
        score(both.results_file, tasks={"walking": "walking"})
    with pytest.raises(FileFormatError, match="was not made by an Assay run"):
        score(write_run(tmp_path / "theirs", {"counting": [1.0, 0.0]}))
    alone = tmp_path / "alone" / both.results_file.name
    alone.parent.mkdir()
    for file in both.results_file.parent.glob("*.json*"):
        shutil.copy(file, alone.parent)
    with pytest.raises(FileFormatError, match=r"journal of .* is not beside it"):
        score(alone)


def test_the_command_says_what_differs(both: Evaluation, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = changed_tasks(tmp_path, "answer is (", "is (")
    for arguments, code, words in (
        ([], 0, "every value is as the run recorded it"),
        (["--include-path", tasks, "--exit-code"], 1, "values differ from the run's"),
        (["--include-path", tasks, "--task", "naming"], 0, "values differ from the run's"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["score", str(both.results_file), *arguments])
        assert ended.value.code == code
        assert words in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["score", str(both.results_file), "--json"])
    assert json.loads(capsys.readouterr().out)["differences"] == []


def test_answers_that_the_journal_has_lost_are_no_agreement(
    both: Evaluation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(both.results_file.parent, folder)
    [journal] = folder.glob("journal/*.journal")
    content = journal.read_bytes()
    journal.write_bytes(content[: len(content) // 2])
    again = score(folder / both.results_file.name)
    recorded = sum(score.n for score in both.scores if score.task != "both")
    assert sum(score.n for score in again.scores if score.task != "both") + sum(again.lost.values()) == recorded
    assert not again.changed_prompts
    with pytest.raises(SystemExit) as ended:
        main(["score", str(folder), "--exit-code"])
    assert ended.value.code == (1 if again.differences else 4)
    shown = capsys.readouterr().out
    assert "the journal lacks answers that the run had" in shown
    assert "every value is as the run recorded it" not in shown


def test_runs_without_samples_files_are_scored_from_their_journal(tmp_path: Path) -> None:
    bare = run(tmp_path, "counting", log_samples=False)
    again = score(bare.results_file)
    assert again.comparison is None
    assert not again.differences
    assert again.scores == bare.scores


def test_a_value_that_was_not_there_differs(both: Evaluation, tmp_path: Path) -> None:
    renamed = changed_tasks(tmp_path, "name: get-answer", "name: another")
    again = score(both.results_file, include_path=renamed)
    assert {(change.key, change.before is None, change.now is None) for change in again.differences} == {
        ("exact_match,get-answer", False, True),
        ("exact_match,another", True, False),
    }
    assert again.exit_code == 1
    assert ": none -> " in "".join(rescored_lines(again)) or " -> none" in "".join(rescored_lines(again))


def test_why_no_answer_can_be_scored_is_said(both: Evaluation, tmp_path: Path) -> None:
    broken = changed_tasks(
        tmp_path, "- function: take_first", "- {function: regex, regex_pattern: ., group_select: 99}"
    )
    with pytest.raises(UnsupportedTaskError, match=r"can be scored; the first, counting 0: the task's scorer failed"):
        score(both.results_file, include_path=broken)
