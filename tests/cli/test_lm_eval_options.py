"""lm-eval's options, typed to ``assay run``: one line says what to type instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.cli import main
from assay.cli.lm_eval_options import INSTEAD
from assay.cli.run import run

RUN_PAGE = Path(__file__).parents[2] / "docs" / "run.md"


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("--tasks gsm8k", "tasks are arguments: assay run gsm8k"),
        ("--model local-chat-completions --model_args model=m,base_url=http://x", "--base-url URL --model NAME"),
        ("--max_batch_size 8", "--concurrency N"),
        ("--max-batch-size=8", "--concurrency N"),
        ("--output_path results", "--output-dir DIR"),
    ],
)
def test_an_option_that_is_lm_evals_alone(capsys: pytest.CaptureFixture[str], typed: str, instead: str) -> None:
    error = refusal(capsys, "gsm8k", *typed.split())
    assert instead in error
    assert "Did you mean" not in error


@pytest.mark.parametrize("typed", ["--batch_size 8", "--device cuda:0", "--trust_remote_code"])
def test_what_a_servers_model_has_from_its_server(capsys: pytest.CaptureFixture[str], typed: str) -> None:
    error = refusal(capsys, "gsm8k", "--base-url", "http://127.0.0.1:1", "--model", "m", *typed.split())
    assert "is for models in this process: --model hf:PATH" in error


def test_another_unknown_option_has_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--tokenizer" in refusal(capsys, "gsm8k", "--tokeniser", "x")


@pytest.mark.parametrize("name", INSTEAD)
def test_each_is_unknown_here_and_the_long_ones_stand_in_the_table(name: str) -> None:
    ours = {option.replace("-", "_") for parameter in run.params for option in parameter.opts}
    assert name.replace("-", "_") not in ours
    assert not name.startswith("--") or name in RUN_PAGE.read_text()


@pytest.mark.parametrize("option", ["--limit", "--alpha"])
def test_a_share_in_per_cent_is_told_as_the_number_to_write(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert "write 0.005 for 0.5 %" in refusal(capsys, "gsm8k", option, "0.5%")


def test_tasks_may_be_named_as_in_lm_eval(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "-t", "nosuch_task", "-L", "3", "--base-url", "http://127.0.0.1:1", "--model", "m"])
    assert ended.value.code == 2
    assert "nosuch_task" in capfd.readouterr().err


def test_help_fits_a_screen_and_has_the_rest_behind_it(capfd: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as ended:
            main(["run", option])
        assert ended.value.code == 0
        shown[option] = capfd.readouterr().out
    assert "--min" in shown["--help"]
    assert "--help-all" in shown["--help"]
    assert "--client-cert" not in shown["--help"]
    assert "--client-cert" in shown["--help-all"]
