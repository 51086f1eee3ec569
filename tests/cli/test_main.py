"""What every command has in common."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from assay import cli


def test_control_c_at_any_moment_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.cli, "invoke", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(["tasks"])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "assay: interrupted\n"


def fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(cli.cli, "invoke", failing)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device", "/x"), "cannot use /x: No space left on device; make room"),
        (OSError(5, "Input/output error", "/x"), "cannot use /x: Input/output error; check the disk"),
        (OSError(24, "Too many open files", "/x"), "cannot use /x: Too many open files; allow more open files"),
    ],
)
def test_a_disk_that_is_full_or_fails_is_no_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, words: str
) -> None:
    fail(monkeypatch, error)
    with pytest.raises(SystemExit) as ended:
        cli.main(["tasks"])
    assert (ended.value.code, capsys.readouterr().err.startswith(f"assay: {words}")) == (74, True)


def test_where_no_traceback_can_be_kept_the_error_is_said_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fail(monkeypatch, RuntimeError("odd"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(SystemExit) as ended:
        cli.main(["tasks"])
    assert ended.value.code == 70
    assert "RuntimeError: odd; traceback in no file (No such file" in capsys.readouterr().err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_streams_to_nowhere(tmp_path: Path, closed: str) -> None:
    """Neither does a command miss them, nor does a file that is opened later take their place."""
    journal = tmp_path / "empty.journal"
    journal.write_bytes(b"assay-journal\n")
    command = shlex.join([sys.executable, "-m", "assay", "journal", "export", str(journal)])
    assert subprocess.run(f"{command} {closed}", shell=True, check=False).returncode == 0
    said = (
        "import os, sys; from assay import cli; cli._replace_closed_streams(); "
        f"named = os.open({str(journal)!r}, os.O_RDONLY); print('kept'); sys.exit(named < 3)"
    )
    assert (
        subprocess.run(f"{shlex.join([sys.executable, '-c', said])} {closed}", shell=True, check=False).returncode == 0
    )


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("assay ru", ["run", "runs"]),
        ("assay run --concurr", ["--concurrency"]),
        ("assay helm ev", ["evaluate"]),
    ],
)
def test_shells_complete_commands_and_options(words: str, completions: list[str]) -> None:
    typed = {"_ASSAY_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    command = [sys.executable, "-m", "assay"]
    done = subprocess.run(command, env={**os.environ, **typed}, capture_output=True, text=True, check=False)
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == completions


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str) -> None:
    command = [sys.executable, "-m", "assay"]
    environment = {**os.environ, "_ASSAY_COMPLETE": f"{shell}_source"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "_ASSAY_COMPLETE" in done.stdout
