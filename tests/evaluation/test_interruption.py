"""Signals at the places where an exception would be lost, or would break something off."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httptools
import pytest

from assay._util import interruption
from assay._util.interruption import interruptible, run_stoppable, uninterrupted
from assay.errors import RunInterrupted

JOURNALS = Path("out/journal")


@pytest.fixture(autouse=True, params=[signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"])
def sigint(request: pytest.FixtureRequest) -> Iterator[None]:
    """Shells have SIGINT ignored in jobs in the background."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def run(work: Callable[[], Any]) -> None:
    """Run a coroutine function as evaluations do, and see that SIGTERM stops it."""
    with (
        pytest.raises(
            RunInterrupted, match=rf"stopped by SIGTERM; .* kept in {JOURNALS}, run the same command"
        ) as told,
        interruptible(JOURNALS),
        asyncio.Runner() as runner,
    ):
        run_stoppable(runner, work())
    assert told.value.exit_code == 143


async def rounds() -> None:
    """Long enough for what is asked of the loop to be done."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_where_no_loop_runs() -> None:
    reached = []

    def work() -> None:
        with interruptible(JOURNALS):
            reached.append("before")
            terminate()
            reached.append("after")

    with pytest.raises(RunInterrupted, match="stopped by SIGTERM") as told:
        work()
    assert told.value.exit_code == 143
    assert reached == ["before"]


def test_in_a_loop_that_is_run_otherwise() -> None:
    async def work() -> None:
        terminate()
        await asyncio.Event().wait()

    with pytest.raises(RunInterrupted, match="stopped by SIGTERM"), interruptible(JOURNALS):
        asyncio.run(work())


def test_in_a_callback_of_the_http_parser() -> None:
    class Reply:
        def on_headers_complete(self) -> None:
            terminate()

    async def work() -> None:
        httptools.HttpResponseParser(Reply()).feed_data(b"HTTP/1.1 200 OK\r\n\r\n")
        await rounds()

    run(work)


def test_in_a_finaliser() -> None:
    class Dropped:
        def __del__(self) -> None:
            terminate()

    async def work() -> None:
        Dropped()
        await rounds()

    run(work)


def test_while_the_loop_waits() -> None:
    async def work() -> None:
        asyncio.get_running_loop().call_soon(terminate)
        await asyncio.Event().wait()

    run(work)


def test_repeated_while_tasks_tidy_up() -> None:
    """As ``timeout`` of the GNU core utilities does it: one to its child, one to the child's process group."""
    tidied = []

    async def part() -> None:
        try:
            terminate()
            terminate()
            await rounds()
        finally:
            terminate()
            await rounds()
            tidied.append("part")

    async def work() -> None:
        try:
            async with asyncio.TaskGroup() as parts:
                parts.create_task(part())
        finally:
            await rounds()
            tidied.append("whole")

    run(work)
    assert tidied == ["part", "whole"]


def run_beside_journal(work: Callable[[list[str]], Coroutine[Any, Any, None]]) -> list[str]:
    """What ends while work is stopped, in that order."""
    ended: list[str] = []

    def surrounded() -> None:
        with interruptible(JOURNALS), asyncio.Runner() as runner:
            try:
                run_stoppable(runner, work(ended))
            finally:
                ended.append("journal")

    with pytest.raises(RunInterrupted):
        surrounded()
    return ended


def test_work_ends_before_what_surrounds_it() -> None:
    """A journal that it writes to is still open."""

    async def work(ended: list[str]) -> None:
        try:
            terminate()
            await rounds()
        finally:
            ended.append("work")

    assert run_beside_journal(work) == ["work", "journal"]


def test_work_of_another_thread_is_not_taken_for_it() -> None:
    def another() -> None:
        with asyncio.Runner() as runner:
            run_stoppable(runner, rounds())

    async def work(ended: list[str]) -> None:
        try:
            await asyncio.to_thread(another)
            terminate()
            await rounds()
        finally:
            ended.append("work")

    assert run_beside_journal(work) == ["work", "journal"]


def test_in_the_second_of_two_works() -> None:
    async def nothing() -> int:
        return 7

    async def work() -> None:
        terminate()
        await rounds()

    def twice() -> None:
        with interruptible(JOURNALS), asyncio.Runner() as runner:
            assert run_stoppable(runner, nothing()) == 7
            run_stoppable(runner, work())

    with pytest.raises(RunInterrupted, match="stopped by SIGTERM"):
        twice()


def test_the_handler_is_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptible(JOURNALS):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(RunInterrupted), interruptible(JOURNALS):
        terminate()
    assert signal.getsignal(signal.SIGTERM) is before


def test_in_another_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def look() -> Any:
        with interruptible(JOURNALS):
            return signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(look).result() is before


def control_c() -> None:
    signal.raise_signal(signal.SIGINT)


def await_signal() -> None:
    for _ in range(2000):
        time.sleep(0.01)
    pytest.fail("the signal was lost")


def lost_in_a_finaliser(stop: Callable[[], None]) -> None:
    """As in importlib, whose locks have such callbacks."""

    class Dropped: ...

    dropped = Dropped()
    kept = weakref.ref(dropped, lambda _: stop())
    del dropped
    assert kept() is None


def lost_in_a_library(stop: Callable[[], None]) -> None:
    try:
        stop()
    except BaseException:
        return


@pytest.mark.parametrize("lose", [lost_in_a_finaliser, lost_in_a_library])
@pytest.mark.parametrize(("stop", "code"), [(terminate, 143), (control_c, 130)])
def test_a_signal_that_is_lost_comes_again(
    lose: Callable[[Callable[[], None]], None],
    stop: Callable[[], None],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(interruption, "_RESEND_AFTER", 0.05)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def work() -> None:
        lose(stop)
        await_signal()

    with pytest.raises(RunInterrupted, match="stopped by SIG") as told, interruptible(JOURNALS):
        work()
    assert told.value.exit_code == code
    assert capsys.readouterr().err == ""


def test_a_signal_that_is_lost_before_a_loop_runs_stops_what_runs_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "_RESEND_AFTER", 0.05)

    async def work() -> None:
        await asyncio.Event().wait()

    def start() -> Coroutine[Any, Any, None]:
        lost_in_a_library(terminate)
        return work()

    run(start)


def test_an_error_that_a_stopped_library_makes_of_it_is_not_shown() -> None:
    def import_numpy() -> None:
        lost_in_a_library(terminate)
        raise ImportError("numpy.core.multiarray failed to import")

    with pytest.raises(RunInterrupted, match="stopped by SIGTERM"), interruptible(JOURNALS):
        import_numpy()


def test_a_second_control_c_does_not_wait_until_all_is_tidied_up() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def work() -> None:
        try:
            control_c()
            await asyncio.Event().wait()
        finally:
            control_c()
            pytest.fail("went on")

    with (
        pytest.raises(RunInterrupted, match="stopped by SIGINT"),
        interruptible(JOURNALS),
        asyncio.Runner() as runner,
    ):
        run_stoppable(runner, work())


@pytest.mark.parametrize(
    ("module", "ends"),
    [("click", (-signal.SIGINT, "")), ("assay.cli.tasks", (130, "assay: interrupted\n"))],
)
def test_control_c_during_an_import_shows_no_traceback(module: str, ends: tuple[int, str]) -> None:
    program = f"""
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["tasks"]
runpy.run_module("assay", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == ends


def test_the_exit_code_holds_also_where_a_string_was_executed_when_the_signal_came(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text("""
from assay import cli

def stopped():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        cli.end("stopped by SIGTERM", 143)

cli.main = stopped
from assay.__main__ import main
main()
""")
    command = [sys.executable, "-m", "stopped"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (143, "assay: stopped by SIGTERM\n")


def test_a_forked_child_raises_it_alone() -> None:
    with interruptible(JOURNALS):
        child = os.fork()
        if child == 0:
            try:
                terminate()
            except KeyboardInterrupt:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.filterwarnings("error")
def test_work_that_was_not_begun_leaves_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    class Stopping(asyncio.Runner):  # type: ignore[misc]  # it is final; here no loop is to run
        def run(self, *_: Any, **__: Any) -> Any:
            terminate()

    with (
        pytest.raises(RunInterrupted, match="stopped by SIGTERM"),
        interruptible(JOURNALS),
        Stopping() as runner,
    ):
        run_stoppable(runner, rounds())
    gc.collect()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("in_a_task", [False, True])
def test_code_that_keeps_the_loop_from_hearing_of_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, in_a_task: bool
) -> None:
    monkeypatch.setattr(interruption, "_RESEND_AFTER", 0.05)
    ended = []

    async def keep_the_loop() -> None:
        terminate()
        terminate()  # as ``timeout`` sends it
        end = time.monotonic() + 20
        while time.monotonic() < end:
            pass
        ended.append("by itself")

    async def work() -> None:
        if not in_a_task:
            await keep_the_loop()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_the_loop())

    run(work)
    assert not ended


def test_a_block_ends_before_a_signal_takes_effect() -> None:
    ended = []

    def block() -> None:
        with interruptible(JOURNALS):
            with uninterrupted():
                terminate()
                ended.append("block")
            ended.append("after it")

    with pytest.raises(RunInterrupted):
        block()
    assert ended == ["block"]
