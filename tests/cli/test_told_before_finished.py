"""A run counts as finished when its outcome has been told: what interrupts it before costs no question twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay.evaluation
from assay.cli import main, output
from assay.errors import RunInterrupted
from assay.journal import check, find_journals, finishing
from tests.cli.test_run import TASKS, right
from tests.helm.running.runs import write_run
from tests.servers.scripted import ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(answer=right, models=["scripted"]) as running:
        yield running


def assay_ends_with(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


@pytest.fixture
def terminated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """SIGTERM comes as soon as a run is marked as finished, and is noted; elsewhere it would end the process."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))

    def finish_journal(path: Path, failed: int) -> None:
        finishing.finish_journal(path, failed)
        signal.raise_signal(signal.SIGTERM)

    for user in ("assay.evaluation.finish", "assay.helm.running.answering"):
        monkeypatch.setattr(f"{user}.finish_journal", finish_journal)
    yield came
    signal.signal(signal.SIGTERM, before)


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_a_run_that_is_stopped_before_its_table_tells_it_the_next_time(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "counting", "--base-url", server.url, "--model", "scripted", "--include-path", str(TASKS)]
    command += ["--limit", "10", "--no-probe", "--output-dir", str(tmp_path)]
    with monkeypatch.context() as patched:
        patched.setattr(output, "present", interrupted)
        assert assay_ends_with(*command) == 130
    assert "run the same command again to go on" in capsys.readouterr().err
    [results] = tmp_path.rglob("results_*.json")
    asked = server.count
    assert assay_ends_with(*command) == 0
    assert str(results) in capsys.readouterr().out, "the same results, under the same time stamp"
    assert server.count == asked == 10
    [journal] = find_journals(tmp_path / "scripted" / "journal")
    assert check(journal).finished
    assert assay_ends_with(*command) == 0
    assert server.count == 20, "a run that was told is another one the next time"


def test_a_gate_that_is_stopped_at_its_second_model_asks_the_first_nothing_again(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = assay.evaluation.evaluate
    with ScriptedServer(answer=right, models=["scripted"]) as second:
        policy = tmp_path / "gate.toml"
        models = "".join(
            f'[models.{name}]\nbase_url = "{one.url}"\nmodel = "scripted"\n'
            for name, one in (("a", server), ("b", second))
        )
        policy.write_text(
            f'stop_early = false\nprobe = false\n{models}[options]\ninclude_path = "{TASKS}"\nlimit = 10\n'
            '[[checks]]\ntask = "counting"\nmetric = "exact_match,get-answer"\nmin = 0.9\n'
        )

        def stopped_at_the_second(specification: Any, *rest: Any, **how: Any) -> Any:
            if specification.model.base_url == second.url:
                raise RunInterrupted("stopped")
            return evaluate(specification, *rest, **how)

        with monkeypatch.context() as patched:
            patched.setattr(assay.evaluation, "evaluate", stopped_at_the_second)
            assert assay_ends_with("gate", str(policy), "--no-github") == 130
        assert (server.count, second.count) == (10, 0)
        assert assay_ends_with("gate", str(policy), "--no-github") == 0
        assert (server.count, second.count) == (10, 10)
    assert all(check(journal).finished for journal in tmp_path.rglob("*.journal"))


def test_a_helm_run_that_is_stopped_before_its_statistics_are_shown(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer = lambda _: "a1"
    command = ["helm", "run", str(write_run(tmp_path / "earlier")), "--base-url", server.url, "--model", "scripted"]
    command += ["--output-dir", str(tmp_path)]
    with monkeypatch.context() as patched:
        patched.setattr("assay.cli.helm_output.print_stats", interrupted)
        assert assay_ends_with(*command) == 130
    assert server.count == 6
    assert assay_ends_with(*command) == 0
    assert server.count == 6


def test_a_signal_that_comes_when_all_is_told_does_not_ask_for_the_same_command_again(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], terminated: list[int]
) -> None:
    server.answer = lambda body: "a1" if "prompt" in body else right(body)
    where = ["--base-url", server.url, "--model", "scripted", "--output-dir", str(tmp_path)]
    run = ["run", "counting", "--include-path", str(TASKS), "--limit", "10", "--no-probe", *where]
    assert assay_ends_with(*run) == 0
    assert assay_ends_with("helm", "run", str(write_run(tmp_path / "earlier")), *where) == 0
    told = capsys.readouterr()
    assert "exact_match" in told.out
    assert "run the same command again" not in told.err
    assert terminated == [signal.SIGTERM] * 2


def test_a_signal_leaves_no_model_of_a_told_gate_to_be_asked_anew(
    server: ScriptedServer, tmp_path: Path, terminated: list[int]
) -> None:
    policy = tmp_path / "gate.toml"
    models = "".join(
        f'[models.{name}]\nbase_url = "{server.url}"\nmodel = "scripted"\nseed = {name}\n' for name in "12"
    )
    policy.write_text(
        f'probe = false\n{models}[options]\ninclude_path = "{TASKS}"\n'
        '[[checks]]\ntask = "counting"\nmetric = "exact_match,get-answer"\nmin = 0.9\n'
    )

    class StoppedError(BaseException):
        pass

    def stop(*_: object) -> None:
        raise StoppedError

    signal.signal(signal.SIGTERM, stop)
    with pytest.raises(StoppedError):
        main(["gate", str(policy), "--no-github"])
    journals = list(tmp_path.rglob("*.journal"))
    assert len(journals) == 2
    assert all(check(journal).finished for journal in journals)
    assert not terminated
