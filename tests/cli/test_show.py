"""``assay show``: the right samples, shown so that nothing a model wrote can act."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.evaluation import Evaluation, evaluate
from assay.types import ModelSpec, Specification, TaskOptions
from tests.servers.scripted import Fault, ScriptedServer, reply_with
from tests.web import written_runs

TASKS = Path(__file__).parent.parent / "evaluation_tasks"
HOSTILE = "\x1b[2Jwiped\rout\u202etxt.exe\u200b [red]"


def answer(body: dict[str, Any], wrong: int = 1) -> dict[str, Any]:
    """Right, wrong, cut off, hostile, in turn."""
    numbers = [int(word) for word in body["messages"][-1]["content"].split() if word.isdigit()]
    turn = numbers[0] % 4
    said = {0: f"The answer is {sum(numbers)}", wrong: "The answer is 1000", 2: "The answer", 3: HOSTILE}.get(
        turn, f"The answer is {sum(numbers)}"
    )
    reply = reply_with(said, body)
    reply["choices"][0]["finish_reason"] = "length" if turn == 2 else "stop"
    reply["choices"][0]["message"]["reasoning_content"] = "because\nof that" if turn == 1 else None
    return reply


def run(folder: Path, wrong: int = 1) -> Evaluation:
    faults = [Fault("http_400", fraction=0.1)]
    with ScriptedServer(answer=lambda body: answer(body, wrong), models=["scripted"], faults=faults) as server:
        return evaluate(
            Specification(
                tasks=("counting", "naming"),
                model=ModelSpec(base_url=server.url, model="scripted"),
                options=TaskOptions(include_path=str(TASKS)),
                output_dir=str(folder),
            )
        )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return run(tmp_path_factory.mktemp("run"))


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["show", *arguments])
    said = capsys.readouterr()
    return f"{ended.value.code}{said.err}{said.out}"


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown(capsys, *arguments, "--json").removeprefix("0").splitlines()]


def test_one_sample_is_shown_with_all_that_is_known(finished: Evaluation, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines(capsys, str(finished.results_file), "--task", "counting", "--wrong", "--limit", "1")
    doc_id = line["sample"]["doc_id"]
    text = shown(capsys, str(finished.results_file), "--task", "counting", "--doc", str(doc_id))
    assert f"counting {doc_id}" in text
    for label in ("prompt", "answer", "extracted", "target", "ended by length", "exact_match,get-answer 0"):
        assert label in text, label


@pytest.mark.parametrize("outcome", ["truncated", "failed", "answered"])
def test_samples_are_chosen_by_outcome(finished: Evaluation, capsys: pytest.CaptureFixture[str], outcome: str) -> None:
    chosen = lines(capsys, str(finished.results_file), "--outcome", outcome)
    expected = sum(
        count for score in finished.scores for name, count in score.outcomes.items() if name.value == outcome
    )
    assert len(chosen) == expected > 0
    if outcome == "failed":
        assert lines(capsys, str(finished.results_file), "--failed") == chosen
        assert "bad_request" in shown(capsys, str(finished.results_file), "--failed")


def test_samples_are_chosen_by_text(finished: Evaluation, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = lines(capsys, str(finished.results_file), "--containing", "OF THAT")
    assert chosen
    assert {line["sample"]["responses"][0]["reasoning"] for line in chosen} == {"because\nof that"}


def test_flips_are_shown_beside_the_baseline(
    finished: Evaluation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run(tmp_path, wrong=0)
    text = shown(capsys, str(finished.results_file), "--flipped", "--baseline", str(before.results_file))
    assert "exact_match,get-answer lost: " in text
    assert "exact_match,get-answer gained: 1000 <- The answer is 1000" in text
    assert shown(capsys, str(finished.results_file), "--flipped")[0] == "2"


def test_hostile_text_is_shown_and_does_nothing(finished: Evaluation, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(finished.results_file), "--containing", "wiped")
    assert "\\x1b[2Jwiped\\rout\\u202etxt.exe\\u200b [red]" in text
    assert not set(text) & {"\x1b", "\r", "\u202e", "\u200b"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--task", "walking"], 2, "has no task 'walking'; it has counting, naming"),
        (["--task", "naming", "--doc", "60"], 2, "has no document 60 of 'naming'; it has 60, from 0 to 59"),
        (["--outcome", "walked"], 2, "'walked' is not one of"),
        (["--containing", "nobody says this"], 0, "no sample of the run matches"),
    ],
)
def test_a_choice_that_is_empty_or_wrong(
    finished: Evaluation, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    text = shown(capsys, str(finished.results_file), *arguments)
    assert text.startswith(str(code))
    assert words in text


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no run" in shown(capsys, str(tmp_path))


def test_lone_surrogates_are_json_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written_runs.write_run(tmp_path, {"t": [{"answer": "\ud800 said", "right": False}]}, model="\ud800")
    (line,) = lines(capsys, str(file))
    assert line["sample"]["responses"][0]["text"] == "\ud800 said"
    with pytest.raises(SystemExit):
        main(["compare", str(file), str(file), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["baseline_model"] == "\ud800"


def test_huge_extracts_are_shown_in_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written_runs.write_run(tmp_path, {"t": [{"answer": "x", "extracted": "y" * 100_000}]})
    assert len(shown(capsys, str(file))) < 5000
    assert len(shown(capsys, str(file), "--full")) > 100_000


def test_errors_show_no_control_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written_runs.write_run(tmp_path, {"t\x1b[2J": [{}]})
    assert "t\\x1b[2J" in shown(capsys, str(file), "--task", "other")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    file = written_runs.write_run(tmp_path, {"t": [{}] * 200})
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "assay", "show", str(file)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 74
    assert ran.stderr == "assay: cannot write to standard output: No space left on device\n"
