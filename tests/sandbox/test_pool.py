"""What programs in the sandbox cannot do, what it costs, and what happens when its processes die."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import SandboxError
from assay.sandbox.pool import Sandbox
from assay.sandbox.program import Ending, Limits, Program, RunResult

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="most protections are Linux's")

PROTECTIONS: list[tuple[str, ...]] = [
    (),
    ("namespaces",),
    ("system_calls",),
    ("namespaces", "user"),
    ("namespaces", "system_calls", "files", "user"),
]


@pytest.fixture(scope="module", params=PROTECTIONS, ids=lambda without: "without " + (" ".join(without) or "nothing"))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Sandboxes as they are on machines that allow more or less."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-secret-of-the-test")
        with Sandbox(Limits(memory=1 << 30, storage=1 << 20), width=2, without=request.param) as opened:
            confinement = opened.start()
            assert not any(getattr(confinement, name) for name in request.param)
            yield opened


def run(sandbox: Sandbox, source: str, seconds: float = 30.0) -> RunResult:
    [result] = sandbox.run([Program(source, seconds)])
    return result


@pytest.mark.parametrize(
    ("source", "ending"),
    [
        ("x = 1", Ending.FINISHED),
        ("", Ending.FINISHED),
        ("assert 1 == 2, 'no'", Ending.RAISED),
        ("def f(:", Ending.RAISED),
        ("\ud800", Ending.RAISED),
        ("x = '\0'", Ending.RAISED),
        ("import sys; sys.exit(0)", Ending.RAISED),
        ("raise KeyboardInterrupt", Ending.RAISED),
        ("import os; os._exit(0)", Ending.DIED),
        ("import os; os.abort()", Ending.DIED),
        ("import os; os.closerange(3, 100)", Ending.DIED),
        ("import ctypes; ctypes.string_at(0)", Ending.DIED),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", Ending.DIED),
        ("import os; os.close(1); os.close(2); print(1)", Ending.FINISHED),
        ("print('x' * 10**8)", Ending.FINISHED),
        ("import threading; threading.Thread(target=__import__('time').sleep, args=(9,)).start()", Ending.FINISHED),
        ("import multiprocessing.pool as p; assert p.ThreadPool(2).map(abs, [-1]) == [1]", Ending.FINISHED),
        ("import asyncio; asyncio.run(asyncio.sleep(0))", Ending.FINISHED),
        ("import tempfile; tempfile.TemporaryFile().write(b'x')", Ending.FINISHED),
        ("x = bytearray(2 << 30)", Ending.RAISED),
        ("open('x', 'wb').write(b'x' * (2 << 20))", Ending.RAISED),
        ("files = [open('x', 'w') for _ in range(10**4)]", Ending.RAISED),
        ("assert __name__ == 'builtins'", Ending.FINISHED),
        ("assert input() == ''", Ending.RAISED),
    ],
)
def test_how_programs_end(sandbox: Sandbox, source: str, ending: Ending) -> None:
    assert run(sandbox, source).ending is ending


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import signal; signal.setitimer(signal.ITIMER_REAL, 0)\nwhile True: pass",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ],
)
def test_a_program_that_does_not_end_is_stopped(sandbox: Sandbox, source: str) -> None:
    assert run(sandbox, source, 0.2).ending is Ending.TIMED_OUT


def test_the_exceptions_text_is_told_but_cut(sandbox: Sandbox) -> None:
    assert run(sandbox, "raise ValueError('a' * 10**6)").message == "a" * 500
    assert run(sandbox, "1 / 0").message == "division by zero"


def test_setup_runs_before_and_apart(sandbox: Sandbox) -> None:
    setup = "import builtins\nbuiltins.answer = 42\nhidden = 1"
    assert sandbox.run([Program("assert answer == 42", 30, setup)])[0].ending is Ending.FINISHED
    assert sandbox.run([Program("hidden", 30, setup)])[0].ending is Ending.RAISED
    assert run(sandbox, "answer").message == "name 'answer' is not defined", "nothing of it stays"


def test_programs_leave_nothing_for_the_next(sandbox: Sandbox) -> None:
    program = "import os, builtins\nassert os.listdir('.') == [] and not hasattr(builtins, 'left')\n"
    program += "open('left', 'w').write('x'); os.mkdir('d', 0); builtins.left = 1"
    assert {result.ending for result in sandbox.run([Program(program, 30)] * 6)} == {Ending.FINISHED}


def test_the_same_program_ends_the_same_way(sandbox: Sandbox) -> None:
    source = "import random\nraise ValueError(str(set('abcdefgh')) + str(random.random()))"
    assert len({result.message for result in sandbox.run([Program(source, 30)] * 5)}) == 1


def test_no_secret_is_within_reach(sandbox: Sandbox) -> None:
    source = """
import os
found = [str(dict(os.environ))]
for pid in os.listdir("/proc"):
    try:
        found.append(open(f"/proc/{pid}/environ").read())
    except OSError:
        pass
assert "secret-of-the-test" not in "".join(found)
"""
    confinement = sandbox.start()
    assert (
        run(sandbox, "import os; assert set(os.environ) == {'HOME', 'TMPDIR', 'OMP_NUM_THREADS'}, os.environ").message
        == ""
    )
    if confinement.namespaces or confinement.user:
        assert run(sandbox, source).message == ""


def test_nothing_that_a_program_starts_outlives_it(sandbox: Sandbox) -> None:
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.wait()
"""
    run(sandbox, source, 1.0)
    assert programs_of(sandbox) == []


def programs_of(sandbox: Sandbox) -> list[int]:
    """Processes below the servers, which with namespaces wait for a child of theirs that serves."""
    servers = {server._process.pid for server in sandbox._servers}
    has_namespaces = sandbox.confinement is not None and sandbox.confinement.namespaces
    return children_of(set(children_of(servers)) if has_namespaces else servers)


def children_of(parents: set[int]) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent in parents:
            found.append(int(entry.parent.name))
    return found


def test_what_full_protection_refuses() -> None:
    with Sandbox(width=1) as sandbox:
        confinement = sandbox.start()
        if confinement.system_calls:
            for source in (
                "import socket; socket.create_connection(('127.0.0.1', 9))",
                "import socket; socket.socket(socket.AF_UNIX)",
                "import os; os.fork()",
                "import posix; posix.posix_spawn('/bin/true', ['true'], {})",
                "import os; os.execv('/bin/true', ['true'])",
                "import os; os.kill(os.getppid(), 9)",
                "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'])",
            ):
                assert "not permitted" in run(sandbox, source).message, source
        if confinement.namespaces:
            for place in ("/tmp/x", str(Path.home() / "x"), str(Path(__file__).with_name("x"))):
                assert "Read-only" in run(sandbox, f"open({place!r}, 'w')").message
            listening = "import os; assert os.listdir('/sys/class/net') and not os.path.exists('/proc/1/root/x')"
            assert run(sandbox, listening).ending in (Ending.FINISHED, Ending.RAISED)


def wait_for_programs(sandbox: Sandbox, count: int) -> None:
    """Until so many servers have a program that runs."""
    deadline = time.monotonic() + 60
    while len(programs_of(sandbox)) < count:
        assert time.monotonic() < deadline, "the programs do not start"
        time.sleep(0.01)


def test_programs_run_at_the_same_time() -> None:
    with Sandbox(width=2) as sandbox:
        futures = [sandbox.submit(Program("import time; time.sleep(600)", 600)) for _ in range(2)]
        wait_for_programs(sandbox, 2)
        assert not any(future.done() for future in futures)


def test_a_program_that_takes_its_server_down_is_wrong_and_no_other_is() -> None:
    with Sandbox(width=1, without=("system_calls", "files", "namespaces", "user")) as sandbox:
        killing = Program("import os, signal; os.kill(os.getppid(), signal.SIGKILL); import time; time.sleep(1)", 30)
        assert [result.ending for result in sandbox.run([Program("", 30), killing, Program("", 30)])] == [
            Ending.FINISHED,
            Ending.DIED,
            Ending.FINISHED,
        ]


def test_closing_ends_what_runs_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sandbox = Sandbox(width=2)
    sandbox.run([Program("", 30)] * 2)
    futures = [sandbox.submit(Program("import time; time.sleep(600)", 600)) for _ in range(5)]
    wait_for_programs(sandbox, 2)
    sandbox.close()
    assert all(future.cancelled() or future.exception(30) or future.result() for future in futures)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError):
        sandbox.submit(Program("", 30))


def test_servers_end_when_nobody_listens_any_more(tmp_path: Path) -> None:
    """Also while a program runs."""
    script = """
from assay.sandbox.pool import Sandbox
from assay.sandbox.program import Program
sandbox = Sandbox(width=1)
confinement = sandbox.start()
print(sandbox._servers[0]._process.pid, int(confinement.namespaces), flush=True)
sandbox.run([Program("import time; time.sleep(600)", 600)])
"""
    tidy = {**os.environ, "TMPDIR": str(tmp_path)}  # an empty folder stays behind
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=tidy) as running:
        assert running.stdout is not None
        server, namespaces = map(int, running.stdout.readline().split())
        deadline = time.monotonic() + 30
        begun = {server}  # with namespaces, what serves is its child
        while len(begun) < 3 and time.monotonic() < deadline:
            begun |= set(children_of(begun))
            if len(begun) == 2 and not namespaces:
                break
            time.sleep(0.01)
        running.kill()
    while any(Path(f"/proc/{process}").exists() for process in begun) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(Path(f"/proc/{process}").exists() for process in begun)


def test_a_machine_on_which_no_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with Sandbox(width=1) as sandbox, pytest.raises(SandboxError, match="cannot start a process"):
        sandbox.run([Program("", 30)])
    monkeypatch.setattr("sys.executable", "/bin/false")
    with Sandbox(width=1) as sandbox, pytest.raises(SandboxError, match="is gone"):
        sandbox.start()
