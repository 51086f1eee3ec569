"""A real server with a small real model, for as long as a ``with`` block runs."""

from __future__ import annotations

import http.client
import importlib.util
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from assay._util.storage import write_error
from assay.demo.weights import MODEL_NAME, find_model_file
from assay.errors import MissingDependencyError, ServerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

_PATIENCE_AT_STOP = 10.0
"""Seconds that the child has to end by itself before it is killed."""


class DemoServer:
    """llama.cpp's HTTP server in a child process, listening on a free port of 127.0.0.1.

    The child ends with the block, and also when this process dies in any way, SIGKILL included: it watches a pipe that
    only this process holds open. It is in a session of its own, so that Ctrl-C reaches this process alone.
    """

    model = MODEL_NAME
    """The name that the model is served under."""

    def __init__(
        self, log_file: Path, *, slots: int = 4, port: int = 0, template: str = "", start_timeout: float = 120.0
    ) -> None:
        """Describe the server; entering the block starts it.

        Args:
            log_file: takes the server's own output; overwritten.
            slots: requests that are answered at once.
            port: 0 for a free one.
            template: a chat template in place of the model's own.
            start_timeout: seconds until it must be ready.
        """
        self.log_file = log_file
        self.slots = slots
        self._port = port
        self._template = template
        self.base_url = ""
        self._start_timeout = start_timeout
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the child and wait until it answers.

        Raises:
            MissingDependencyError: the extra ``demo`` is not installed, or the model could not be fetched.
            FileFormatError: the model file is damaged.
            OutputError: the log cannot be written.
            ServerUnreachableError: the child ended, or was not ready in time.
        """
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingDependencyError('the demo needs llama.cpp\'s server: pip install "assay[demo]"')
        command = child_command(find_model_file(), self.slots, self._port, self._template)
        child = self._child = _start(command, self.log_file)
        try:
            deadline = time.monotonic() + self._start_timeout
            self.base_url = self._await_address(child, deadline)
            self._await_health(child, deadline)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the child."""
        self.stop()

    def stop(self) -> None:
        """End the child and wait until it is gone; harmless when there is none."""
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        try:
            child.wait(_PATIENCE_AT_STOP)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _await_address(self, child: subprocess.Popen[str], deadline: float) -> str:
        """Read the one line that the child writes once it listens."""
        assert child.stdout is not None  # noqa: S101 - for the type checker: _start asks for a pipe
        readable, _, _ = select.select([child.stdout], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            raise self._not_ready(f"was not ready after {self._start_timeout:g} seconds")
        address = child.stdout.readline().strip()
        if not address:
            raise self._not_ready(f"ended with code {child.wait()} before it was ready")
        return address

    def _await_health(self, child: subprocess.Popen[str], deadline: float) -> None:
        while not _is_healthy(self.base_url):
            if child.poll() is not None:
                raise self._not_ready(f"ended with code {child.returncode} before it was ready")
            if time.monotonic() > deadline:
                raise self._not_ready(f"was not ready after {self._start_timeout:g} seconds")
            time.sleep(0.1)

    def _not_ready(self, what: str) -> ServerUnreachableError:
        return ServerUnreachableError(f"the demo's server {what}; see its output in {self.log_file}")


WRONG_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""A chat template that leaves out who says what: a fault that servers have, and that scores show."""


def child_command(model_file: Path, slots: int, port: int = 0, template: str = "") -> list[str]:
    """Return the command that serves a GGUF file; it writes its address to stdout and ends when its stdin does."""
    # -P: a module of the working directory must not be imported in place of a library's.
    settings = [str(model_file), MODEL_NAME, str(slots), str(port), template]
    return [sys.executable, "-P", "-m", "assay.demo.llama_child", *settings]


def _start(command: list[str], log_file: Path) -> subprocess.Popen[str]:
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        log = log_file.open("wb")
    except OSError as error:
        raise write_error(f"cannot write the server's log {log_file}", error) from error
    with log:
        return subprocess.Popen(  # noqa: S603 - the command is this package's own
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=_child_environment(os.environ),
            start_new_session=True,
        )


def _child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    # llama.cpp's threads wait in a busy loop by default; where another process wants the cores too, each of its steps
    # then takes a scheduler's time slice, and it answers ten times slower.
    return {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", **environment}


def _is_healthy(base_url: str) -> bool:
    """Ask ``/health``, directly: proxies that the environment names are not for this machine's own servers."""
    address = urlsplit(base_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
