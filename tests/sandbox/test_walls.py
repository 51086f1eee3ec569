"""Programs that go for the machine, for others' processes and files, and for their own verdict."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.sandbox import system_calls
from assay.sandbox.pool import Sandbox
from assay.sandbox.program import Confinement, Ending, Limits, Program, RunResult

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the walls are Linux's")

MACHINES: list[tuple[str, ...]] = [
    (),
    ("user",),
    ("files",),
    ("namespaces",),
    ("namespaces", "user"),
    ("namespaces", "files"),
    ("system_calls",),
]
"""What is missing there. Each attack is tried against what is left."""
SECONDS = 20.0
NOBODY = 65534


@pytest.fixture(scope="module", params=MACHINES, ids=lambda without: "without " + (" ".join(without) or "nothing"))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(Limits(memory=512 << 20, storage=1 << 20), width=1, without=request.param) as opened:
        opened.start()
        yield opened


@pytest.fixture
def confinement(sandbox: Sandbox) -> Confinement:
    return sandbox.start()


def run(sandbox: Sandbox, source: str) -> RunResult:
    [result] = sandbox.run([Program(source, SECONDS)])
    return result


def expect_message(sandbox: Sandbox, source: str, *words: str) -> None:
    result = run(sandbox, source)
    assert result.ending is Ending.RAISED, (source, result)
    assert any(word in result.message for word in words), (source, result)


# -- others' processes ------------------------------------------------------------------------------------------------


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user who runs the sandbox, with a secret."""
    with subprocess.Popen(["sleep", "600"], env={"KEY": "the-secret"}) as process:
        yield process
        process.kill()


SIGNALS = {
    "kill": "os.kill(pid, 9)",
    "thread": "libc.syscall(234, pid, pid, 9)",
    "queued": "info = ctypes.create_string_buffer(struct.pack('iiiiii', 9, 0, -1, 0, os.getpid(), os.getuid()), 128)\n"
    "libc.syscall(129, pid, 9, info)",
    "pidfd": "libc.syscall(424, libc.syscall(434, pid, 0), 9, 0, 0)",
    "owner of a socket": """
left, right = socket.socketpair()
attempt(fcntl.fcntl, left, fcntl.F_SETOWN, pid)
attempt(fcntl.fcntl, left, 10, 9)
attempt(fcntl.fcntl, left, fcntl.F_SETFL, os.O_ASYNC)
right.send(b'x')
""",
    "owner of a pipe, more precisely": """
left, right = os.pipe()
attempt(fcntl.fcntl, left, 15, struct.pack('ii', 1, pid))
attempt(fcntl.fcntl, left, 10, 9)
attempt(fcntl.fcntl, left, fcntl.F_SETFL, os.O_ASYNC)
os.write(right, b'x')
""",
    "owner by ioctl": """
left, right = socket.socketpair()
for command in (0x8901, 0x8902):
    attempt(fcntl.ioctl, left, command, struct.pack('i', pid))
attempt(fcntl.fcntl, left, 10, 9)
attempt(fcntl.ioctl, left, 0x5452, struct.pack('i', 1))
right.send(b'x')
""",
    "limits": "for kind in (0, 7):\n    libc.syscall(302, pid, kind, struct.pack('QQ', 0, 0), 0)",
    "memory": "attempt(lambda: open(f'/proc/{pid}/mem', 'r+b'))",
    "tracing": "libc.syscall(101, 16, pid, 0, 0)\nlibc.syscall(101, 8, pid, 0, 0)",
}  # fmt: skip
TRYING = """
import ctypes, fcntl, os, socket, struct, time
libc = ctypes.CDLL(None)

def attempt(function, *arguments):
    try:
        return function(*arguments)
    except OSError:
        pass
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls' numbers are x86-64's")
@pytest.mark.parametrize("attack", SIGNALS.values(), ids=SIGNALS)
def test_other_processes_live_on(
    sandbox: Sandbox, confinement: Confinement, victim: subprocess.Popen[bytes], attack: str
) -> None:
    if not (confinement.system_calls or confinement.namespaces or confinement.user):
        pytest.skip("nothing is left on this machine that could keep them")
    indented = "\n    ".join(attack.splitlines())
    for pid in (victim.pid, os.getpid()):
        source = f"{TRYING}\npid = {pid}\ntry:\n    {indented}\nexcept OSError:\n    pass\ntime.sleep(0.05)"
        assert run(sandbox, source).ending is Ending.FINISHED
    assert victim.poll() is None
    limits = Path(f"/proc/{victim.pid}/limits").read_text()
    assert re.search(r"Max cpu time +unlimited", limits)


def test_others_secrets_cannot_be_read(
    sandbox: Sandbox, confinement: Confinement, victim: subprocess.Popen[bytes]
) -> None:
    if not (confinement.files or confinement.namespaces or confinement.user):
        pytest.skip("nothing is left on this machine that could keep them")
    for name in ("environ", "mem", "maps", "fd", "cwd/x"):
        result = run(sandbox, f"import os\npath = '/proc/{victim.pid}/{name}'\nopen(path, 'rb').read(1)")
        assert result.ending is Ending.RAISED, name


# -- files and devices ------------------------------------------------------------------------------------------------


def test_no_device_can_be_written_but_those_that_forget(sandbox: Sandbox, confinement: Confinement) -> None:
    if not (confinement.files or confinement.namespaces):
        pytest.skip("nothing is left on this machine that could keep them")
    mine, terminal = pty.openpty()
    try:
        source = f"""
import os, stat
nodes = [{os.ttyname(terminal)!r}]
for folder, _, names in os.walk("/dev"):
    nodes += [os.path.join(folder, name) for name in names]
opened = []
for node in nodes:
    for flags in (os.O_WRONLY, os.O_RDWR):
        try:
            opened.append((node, os.open(node, flags | os.O_NONBLOCK)))
        except OSError:
            pass
harmless = {{(1, 3), (1, 5), (1, 7), (1, 8), (1, 9)}}  # null, zero, full, random, urandom
for node, fd in opened:
    about = os.fstat(fd)
    if stat.S_ISCHR(about.st_mode) or stat.S_ISBLK(about.st_mode):
        assert (os.major(about.st_rdev), os.minor(about.st_rdev)) in harmless, node
"""
        assert run(sandbox, source) == RunResult(Ending.FINISHED)
    finally:
        os.close(mine)
        os.close(terminal)


CHANGES = {
    "write": "open(path, 'w')",
    "append": "open(path, 'a').write('x')",
    "truncate": "os.truncate(path, 0)",
    "truncate while reading": "os.open(path, os.O_RDONLY | os.O_TRUNC)",
    "remove": "os.unlink(path)",
    "rename": "os.rename(path, path + '2')",
    "move in": "os.rename(path, 'mine')",
    "link": "os.link(path, 'mine'); open('mine', 'w')",
    "make": "open(path + '3', 'w')",
    "make a folder": "os.mkdir(path + '4')",
    "symbolic link": "os.symlink(path, 'link'); open('link', 'w')",
    "symbolic link beside it": "os.symlink('/', path + '5')",
    "mode": "os.chmod(path, 0)",
    "time": "os.utime(path, (0, 0))",
    "attribute": "os.setxattr(path, 'user.x', b'x')",
    "through its descriptor": "os.fchmod(os.open(path, os.O_RDONLY), 0)",
    "through /proc": "opened = os.open(path, os.O_RDONLY); open(f'/proc/self/fd/{opened}', 'w')",
    "out of its folder": "open('../../x', 'w')",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_others_files_stay_as_they_are(sandbox: Sandbox, confinement: Confinement, tmp_path: Path, change: str) -> None:
    if not (confinement.files or confinement.namespaces):
        pytest.skip("nothing is left on this machine that could keep them")
    if not confinement.system_calls and not confinement.namespaces:
        pytest.skip("nothing is left on this machine that could keep their modes")
    file = tmp_path / "file"
    file.write_text("content")
    file.chmod(0o666)
    tmp_path.chmod(0o777)
    before = file.stat()
    assert run(sandbox, f"import os\npath = {str(file)!r}\n{change}").ending is Ending.RAISED
    assert file.read_text() == "content"
    assert (file.stat().st_mode, file.stat().st_mtime) == (before.st_mode, before.st_mtime)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["stream", "datagram"])
def test_no_socket_of_others_is_reached(
    sandbox: Sandbox, confinement: Confinement, tmp_path: Path, kind: socket.SocketKind
) -> None:
    if not confinement.system_calls:
        pytest.skip("nothing is left on this machine that could keep them")
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, kind) as listening:
        listening.bind(str(path))
        path.chmod(0o777)
        if kind is socket.SOCK_STREAM:
            listening.listen()
        listening.setblocking(False)
        source = f"""
import socket
left, right = socket.socketpair(socket.AF_UNIX, socket.{kind.name})
for send in (
    lambda: left.sendto(b"x", {str(path)!r}),
    lambda: left.connect({str(path)!r}),
    lambda: left.sendmsg([b"x"], [], 0, {str(path)!r}),
):
    try:
        send()
    except OSError:
        continue
    raise Exception("sent")
left.send(b"x")
assert right.recv(1) == b"x"
"""
        assert run(sandbox, source) == RunResult(Ending.FINISHED)
        with pytest.raises(BlockingIOError):
            listening.recv(1) if kind is socket.SOCK_DGRAM else listening.accept()


# -- limits -----------------------------------------------------------------------------------------------------------

MEMORY = {
    "memfd_create": "files = [os.memfd_create('x') for _ in range(1)]\nos.truncate(files[0], 1 << 30)",
    "System V": "assert libc.shmget(0, 1 << 20, 0o1777) >= 0, 'refused'",
    "message queue": "assert libc.mq_open(b'/x', os.O_CREAT | os.O_RDWR, 0o600, None) >= 0, 'refused'",
    "large pipes": "fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)",
    "secret memory": "assert libc.syscall(447, 0) >= 0, 'refused'",
    "rings": "assert libc.syscall(425, 8, ctypes.create_string_buffer(120)) >= 0, 'refused'",
    "faults": "assert libc.syscall(323, 1) >= 0, 'refused'",
    "keys": "assert libc.syscall(248, b'user', b'x', b'y', 1, -3) >= 0, 'refused'",
    "programs in the kernel": "assert libc.syscall(321, 0, ctypes.create_string_buffer(128), 128) >= 0, 'refused'",
    "descriptors in flight": "left, right = socket.socketpair(); socket.send_fds(left, [b'x'], [0])",
    "notices": "assert libc.inotify_init() >= 0, 'refused'",
    "timers": "assert libc.syscall(222, 0, None, ctypes.create_string_buffer(8)) >= 0, 'refused'",
    "a 32-bit call": "refuse = ctypes.CDLL(None)\nassert libc.syscall(0x40000000 + 39) >= 0, 'refused'",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls' numbers are x86-64's")
@pytest.mark.parametrize("attack", MEMORY.values(), ids=MEMORY)
def test_nothing_that_the_limits_do_not_count(sandbox: Sandbox, confinement: Confinement, attack: str) -> None:
    if not confinement.system_calls:
        pytest.skip("nothing is left on this machine that could refuse it")
    expect_message(sandbox, TRYING + attack, "refused", "not permitted")


def test_all_files_together_have_a_limit(sandbox: Sandbox, confinement: Confinement) -> None:
    if not confinement.namespaces:
        pytest.skip("nothing is left on this machine that could count them together")
    for places in (("a", "b"), ("a", "/dev/shm/b")):
        source = f"for place in {places}:\n    open(place, 'wb').write(b'x' * (700 << 10))"
        expect_message(sandbox, source, "No space left")
    expect_message(sandbox, "for n in range(20_000):\n    open(str(n), 'w').close()", "No space left")


def test_a_programs_own_memory_is_no_file(sandbox: Sandbox, confinement: Confinement) -> None:
    if os.geteuid() == 0 and not confinement.user:
        pytest.skip("all files are root's")
    expect_message(sandbox, "open('/proc/self/mem', 'rb').read(1)", "Permission denied", "No such file")


def test_folders_in_folders_are_removed(sandbox: Sandbox) -> None:
    source = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nos.mkdir('closed', 0)"
    assert run(sandbox, source).ending is Ending.FINISHED
    assert run(sandbox, "import os\nassert os.listdir('.') == []") == RunResult(Ending.FINISHED)
    [server] = sandbox._servers
    assert not server.is_gone
    assert [name for name in os.listdir(server._folder) if name not in ("home", "shm")] == []


# -- the user ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("without", [(), ("namespaces",), ("files",), ("system_calls",)], ids=str)
def test_programs_of_root_are_nobodys(without: tuple[str, ...]) -> None:
    with Sandbox(width=1, without=without) as sandbox:
        if "namespaces" in without and not sandbox.start().user:
            pytest.skip("nobody may not read the interpreter, and nothing opens the way")
        assert sandbox.start().user
        source = f"""
import os
assert os.getresuid() == os.getresgid() == ({NOBODY},) * 3 and os.getgroups() == [], os.getresuid()
status = open("/proc/self/status").read()
assert "CapEff:\\t0000000000000000" in status and "CapPrm:\\t0000000000000000" in status
open("own", "w").write("x")
"""
        assert run(sandbox, source) == RunResult(Ending.FINISHED)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("first_way", [0, 1], ids=["as root", "in a user namespace"])
def test_nobody_is_shut_in_by_namespaces(first_way: int) -> None:
    """A container's root may lack the privilege and still have user namespaces."""
    if first_way and not all(folder.stat().st_mode & 1 for folder in Path(sys.base_prefix).parents):
        pytest.skip("nobody may not read the interpreter, and nothing opens the way")
    script = """
import sys
from assay.sandbox import confinement
from assay.sandbox.program import Confinement
confinement._SETUPS = confinement._SETUPS[int(sys.argv[2]):]
stands = confinement.confine_server(sys.argv[1], ())
assert stands == Confinement(system_calls=True, files=True, namespaces=True, user=True), stands
"""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own is closed to nobody
        command = [sys.executable, "-c", script, folder, str(first_way)]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""


# -- the verdict ------------------------------------------------------------------------------------------------------

FORGERIES = {
    "every descriptor": """
import os, json
for fd in range(3, 256):
    for report in (b'{"ending": "finished"}\\n', b'!{"ending": "finished"}\\n', b"!" * 33):
        try:
            os.write(fd, report)
        except OSError:
            pass
os._exit(0)
""",
    "what the descriptors hold": """
import os
for fd in range(3, 256):
    try:
        os.set_blocking(fd, False)
        token = os.read(fd, 100)
        for other in range(3, 256):
            try:
                os.write(other, token + b"\\n")
            except OSError:
                pass
    except OSError:
        pass
os._exit(0)
""",
    "what the harness does, done by the program": """
import os, sys, types
if hasattr(sys, "again"):
    raise Exception
sys.again = True
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()):
        if isinstance(value, types.FunctionType) and "token" in value.__name__:
            told = bytearray()
            try:
                told.extend(value())
            except BaseException:
                pass
            for fd in range(3, 64):
                try:
                    os.write(fd, told)
                except OSError:
                    pass
        if isinstance(value, bytearray):
            value += b"0" * 32
    frame = frame.f_back
raise Exception
""",
    "the harness's generator": """
import gc, os, types
for thing in gc.get_objects():
    if isinstance(thing, types.GeneratorType) and "token" in thing.__name__:
        for move in (lambda: next(thing), lambda: thing.throw(StopIteration), lambda: thing.close()):
            try:
                move()
            except (ValueError, RuntimeError, StopIteration):
                pass
os._exit(0)
""",
    "whatever is in the frames": """
import os, sys
found, frame = [], sys._getframe()
while frame:
    found += list(frame.f_locals.values()) + list(frame.f_globals.values())
    frame = frame.f_back
for value in found:
    if isinstance(value, (bytes, bytearray, str)):
        raw = value.encode() if isinstance(value, str) else bytes(value)
        for fd in range(3, 64):
            try:
                os.write(fd, raw[:64] + b"\\n")
            except OSError:
                pass
os._exit(0)
""",
    "whatever the collector knows": """
import gc, os, re, sys
frames, frame = [], sys._getframe()
while frame:
    frames.append(frame)
    frame = frame.f_back
near = frames + gc.get_referents(*frames)
near += gc.get_objects()
near += gc.get_referents(*near)
found = {thing for thing in near if type(thing) is bytes and re.fullmatch(rb"[0-9a-f]{32}", thing)}
for thing in found:
    for fd in range(3, 64):
        try:
            os.write(fd, thing)
        except OSError:
            pass
os._exit(0)
""",
    "the line again": """
import sys
if hasattr(sys, "again"):
    raise Exception
sys.again = True
target = sys._getframe().f_back
lines = sorted({line for _, _, line in target.f_code.co_lines() if line})

def tracer(frame, event, arg):
    if frame is target and event == "line":
        for line in lines:
            try:
                frame.f_lineno = line
                sys.settrace(None)
                return None
            except ValueError:
                continue
    return tracer

target.f_trace = tracer
sys.settrace(tracer)
raise Exception
""",
    "the report's words": """
import json, json.encoder
def finished(*_, **__): return '{"ending": "finished"}'
json.dumps.__code__ = finished.__code__
json.encoder.JSONEncoder.encode = finished
raise Exception
""",
    "other functions": """
import assay.sandbox.server as server, os
def finished(*_, **__): return b'{"ending": "finished"}\\n'
server._execute.__code__ = finished.__code__
server._checked = finished
raise Exception
""",
    "not an error": """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"error": "no memory"}\\n')
    except OSError:
        pass
os._exit(0)
""",
    "an endless report": """
import os
while True:
    for fd in range(3, 64):
        try:
            os.write(fd, b"x" * 4096)
        except OSError:
            pass
""",
    "a quiet end": "import os; os._exit(0)",
    "a child's ending": "import posix\nif posix.fork(): posix._exit(0)",
    "the end from a thread": "import threading, os\nthreading.Thread(target=os._exit, args=[0]).start()\nwhile 1: pass",
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_program_cannot_write_its_own_verdict(sandbox: Sandbox, forgery: str) -> None:
    result = run(sandbox, forgery)
    assert result.ending in (Ending.RAISED, Ending.DIED, Ending.TIMED_OUT), result
    assert run(sandbox, "").ending is Ending.FINISHED


# -- what the machine offers ------------------------------------------------------------------------------------------


def test_what_a_machine_lacks_is_said() -> None:
    full = Confinement(system_calls=True, files=True, namespaces=True, user=False)
    assert full.gaps(as_root=False) == ()
    assert full.gaps(as_root=True) == ("act as root",)
    none = Confinement(system_calls=False, files=False, namespaces=False, user=False)
    assert none.gaps(as_root=False) == (
        "reach the network",
        "write files outside their folder",
        "see and signal other processes",
        "fill the disk",
    )


def test_it_is_said_before_the_first_program_runs(caplog: pytest.LogCaptureFixture) -> None:
    with Sandbox(width=1, without=("namespaces", "system_calls", "files")) as sandbox:
        sandbox.start()
        assert [record.getMessage() for record in caplog.records if "reach the network" in record.getMessage()]
        caplog.clear()
        sandbox.run([Program("", SECONDS)])
    assert not caplog.records, "it is said once"


@pytest.mark.parametrize(
    ("column", "header"),
    [(0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (1, "/usr/include/asm-generic/unistd.h")],
)
def test_the_numbers_are_the_kernels(column: int, header: str) -> None:
    if not Path(header).exists():
        pytest.skip("the kernel's headers are not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())
    numbers = {"newfstatat": "79"} | dict(reversed(found)) if column else dict(found)
    for table in (system_calls.ALLOWED, system_calls.CHANGES_OF_FILES, system_calls.CONDITIONAL):
        for name, pair in table.items():
            number = pair[column]
            assert numbers.get(name) == (None if number is None else str(number)), name


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="no filter is known here")
@pytest.mark.parametrize("changes_of_files", [True, False])
def test_the_filter_is_one_that_the_kernel_takes(changes_of_files: bool) -> None:
    """A filter that it does not take is as if the machine had none, and would be skipped by all tests of it."""
    source = (
        "from assay.sandbox.linux import call\nfrom assay.sandbox.system_calls import refuse_system_calls\n"
        f"call('prctl', 38, 1, 0, 0, 0)\nrefuse_system_calls(changes_of_files={changes_of_files})"
    )
    supported = "Seccomp:" in Path("/proc/self/status").read_text()
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert ended.returncode == 0 or not supported, ended.stderr


def test_signals_to_itself_still_work() -> None:
    with Sandbox(width=1) as sandbox:
        source = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: 1 / 0)\nsignal.raise_signal(signal.SIGUSR1)"
        assert run(sandbox, source).message == "division by zero"
        assert run(sandbox, f"import signal\nsignal.raise_signal({int(signal.SIGKILL)})").ending is Ending.DIED


HARMLESS = {
    "a lower priority of its own": "import os; before = os.nice(0); assert os.nice(1) == min(before + 1, 19)",
    "its own slice of time": "import os; os.sched_rr_get_interval(0)",
    "a lock on a part of its own file": "import fcntl; fcntl.lockf(open('mine', 'w'), fcntl.LOCK_EX)",
    "a data base in a file": "import sqlite3; sqlite3.connect('data').execute('create table t (x)')",
    "a named pipe": """
import os, threading
os.mkfifo("pipe")
writing = threading.Thread(target=lambda: open("pipe", "w").write("x"))
writing.start()
assert open("pipe").read() == "x"
""",
    "an event": "import os; event = os.eventfd(0); os.eventfd_write(event, 3); assert os.eventfd_read(event) == 3",
}


@pytest.mark.parametrize("source", HARMLESS.values(), ids=HARMLESS)
def test_what_concerns_a_program_alone_is_allowed(sandbox: Sandbox, source: str) -> None:
    result = run(sandbox, source)
    assert result.ending is Ending.FINISHED, result


BESIDE_IT = {
    "the priority of all of the user's processes": "os.setpriority(os.PRIO_USER, 0, 5)",
    "another's priority": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 5)",
    "a device": "os.mknod('device', 0o020666, os.makedev(1, 3))",
    "a disk": "os.mknod('disk', 0o060666, os.makedev(7, 0))",
    "a lock on others' files, journals say": "import fcntl; fcntl.flock(os.open('/bin', os.O_RDONLY), fcntl.LOCK_EX)",
    "a socket's name": "os.mknod('socket', 0o140666)",
}


@pytest.mark.parametrize("source", BESIDE_IT.values(), ids=BESIDE_IT)
def test_what_concerns_others_is_not(sandbox: Sandbox, confinement: Confinement, source: str) -> None:
    if not confinement.system_calls:
        pytest.skip("what is left here does not look at calls")
    expect_message(sandbox, f"import os\n{source}", "not permitted")
