"""Runs programs in parallel, each in its own process, confined as far as the machine allows."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, cast

from assay.errors import SandboxError
from assay.sandbox.program import Confinement, Ending, Limits, Program, RunResult
from assay.sandbox.removal import remove_folder
from assay.sandbox.server import read_message, write_message

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_log = logging.getLogger(__name__)

_START_SECONDS = 60.0
_SPARE_SECONDS = 90.0
"""Time beyond a program's own in which its server must answer, preparations included."""
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop()); from assay.sandbox.server import main; del sys.path[0]; main()"
_INHERITED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What an interpreter may need to start. Programs get no other environment variables."""


class Sandbox:
    """Runs programs. Close it after use, or use it as a context manager.

    Before the first program runs, a warning says what the machine cannot keep programs from.

    Args:
        limits: what each program may use.
        width: programs that run at the same time; None for the number of processors.
        without: steps of :class:`Confinement` to leave out.
    """

    def __init__(self, limits: Limits | None = None, width: int | None = None, without: Collection[str] = ()) -> None:
        self._limits = limits or Limits()
        self._without = sorted(without)
        self._threads = ThreadPoolExecutor(width or processors(), thread_name_prefix="assay-sandbox")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._servers: list[_ServerProcess] = []
        self._closed = False
        self.confinement: Confinement | None = None
        """What keeps programs in; known when the first server has started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Confinement:
        """Start a server if none runs, and return how programs are confined.

        Raises:
            SandboxError: programs cannot be run here.
        """
        return self.confinement or self._threads.submit(self._server).result().confinement

    def submit(self, program: Program) -> Future[RunResult]:
        """Queue a program.

        The future raises :class:`SandboxError` if the program could not be run at all.
        """
        return self._threads.submit(self._run, program)

    def run(self, programs: Sequence[Program]) -> list[RunResult]:
        """Run programs and wait for them.

        Raises:
            SandboxError: programs cannot be run here.
        """
        return [future.result() for future in [self.submit(program) for program in programs]]

    def close(self) -> None:
        """Kill all servers and their programs."""
        with self._lock:
            self._closed = True
            servers, self._servers = self._servers, []
        self._threads.shutdown(wait=False, cancel_futures=True)
        for server in servers:
            server.kill()
        self._threads.shutdown()
        for server in servers:
            server.remove()

    def _run(self, program: Program) -> RunResult:
        try:
            return self._server().run(program)
        except _ServerGoneError:  # the program may not be the cause
            server = self._server()
        try:
            return server.run(program)
        except _ServerGoneError:
            return RunResult(Ending.DIED, "it took its server down, twice")

    def _server(self) -> _ServerProcess:
        server: _ServerProcess | None = getattr(self._local, "server", None)
        if server is None or server.is_gone:
            server = self._local.server = self._start_server()
        return server

    def _start_server(self) -> _ServerProcess:
        with self._lock:
            if self._closed:
                raise SandboxError("the sandbox is closed")
            self._servers = [server for server in self._servers if not server.is_gone]
            server = _ServerProcess(self._limits, self._without)
            self._servers.append(server)
        confinement = server.wait_until_ready()
        with self._lock:
            is_first, self.confinement = self.confinement is None, confinement
        if is_first and (gaps := confinement.gaps(as_root=hasattr(os, "geteuid") and os.geteuid() == 0)):
            _log.warning("programs that the model writes can %s: this machine cannot prevent it", ", ".join(gaps))
        return server


class _ServerGoneError(SandboxError):
    """The server died or hangs, whatever the reason."""


class _ServerProcess:
    """One server, which runs one program at a time."""

    def __init__(self, limits: Limits, without: Sequence[str]) -> None:
        self._folder = tempfile.mkdtemp(prefix="assay-sandbox-")
        settings = [self._folder, json.dumps(asdict(limits)), json.dumps(without)]
        package_root = str(Path(__file__).resolve().parents[2])
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter that runs this
                # Not -I: it ignores PYTHONHASHSEED, and random string hashes could change a program's verdict.
                [sys.executable, "-s", "-P", "-c", _BOOT, *settings, package_root],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
                | {"PYTHONHASHSEED": "0"},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self.remove()
            raise SandboxError(f"cannot start a process to run programs in: {error}") from error
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self.is_gone = False

    @property
    def confinement(self) -> Confinement:
        """How this server's programs are confined."""
        return self._confinement

    def wait_until_ready(self) -> Confinement:
        """Wait until the server is ready."""
        self._confinement = Confinement(**self._receive(_START_SECONDS))
        return self._confinement

    def run(self, program: Program) -> RunResult:
        """Run a program."""
        try:
            write_message(self._input.fileno(), json.dumps(asdict(program)).encode())
        except OSError as error:
            raise self._mark_gone(str(error)) from error
        reply = self._receive(program.seconds + _SPARE_SECONDS)
        return RunResult(Ending(reply["ending"]), str(reply.get("message", "")))

    def kill(self) -> None:
        """Kill the server and its program."""
        self.is_gone = True
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, 9)

    def remove(self) -> None:
        """Wait for the server's end, and remove its folder."""
        if hasattr(self, "_process"):
            self._process.wait()
            self._input.close()
            self._output.close()
        remove_folder(self._folder)

    def _receive(self, seconds: float) -> dict[str, Any]:
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        deadline = time.monotonic() + seconds
        if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            raise self._mark_gone(f"no reply within {seconds:g} s")
        message = read_message(self._output.fileno())
        if message is None:
            raise self._mark_gone("it ended")
        reply: dict[str, Any] = json.loads(message)
        if (error := reply.get("error")) is not None:
            raise SandboxError(f"a program could not be confined: {error}")
        return reply

    def _mark_gone(self, why: str) -> _ServerGoneError:
        self.kill()
        self.remove()
        return _ServerGoneError(f"the process in which programs run is gone: {why}")


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
