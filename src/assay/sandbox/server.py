"""The server process, which forks a child for every program. It has an empty environment and holds no secrets.

It reads programs from its standard input and writes their results to its standard output, in the format of
:func:`read_message`. It ends when its input does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import select
import signal
import struct
import sys
import time
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, NamedTuple, NoReturn

from assay.sandbox.confinement import confine_program, confine_server, workplace
from assay.sandbox.program import Confinement, Ending, Limits, Program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_GRACE = 1.0
"""Seconds between the exception in a program that takes too long and its kill."""
_LOOK_EVERY = 0.01
"""Seconds between checks for a child's end, where there is no pidfd to wait for."""
_PREPARATION_SECONDS = 60.0
"""For everything before a program's own time begins."""
_BEGUN = b"!"
"""What a child writes when the program's own time begins."""
_TOKEN_BYTES = 32
_LONGEST_REPORT = 1 << 16
_LONGEST_MESSAGE = 500
_MOST_SWEEPS = 1000
_LENGTH = struct.Struct("<Q")

_LOADED_FOR_PROGRAMS = (
    "bisect", "collections", "copy", "datetime", "decimal", "fractions", "functools", "hashlib", "heapq", "itertools",
    "math", "multiprocessing.pool", "operator", "queue", "re", "statistics", "string", "threading", "typing",
)  # fmt: skip
"""Modules that programs often import, loaded once. lm-eval's process has loaded all of them, too."""


def read_message(stream: int) -> bytes | None:
    """Read a message from a file descriptor: eight bytes of length, then the content. None at the end of the file."""
    head = _read(stream, _LENGTH.size)
    return None if head is None else _read(stream, _LENGTH.unpack(head)[0])


def write_message(stream: int, content: bytes) -> None:
    """Write a message in the format of :func:`read_message`."""
    rest = memoryview(_LENGTH.pack(len(content)) + content)
    while rest:
        rest = rest[os.write(stream, rest) :]


def _read(stream: int, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = os.read(stream, min(count - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


class _Server(NamedTuple):
    folder: str
    limits: Limits
    confinement: Confinement
    requests: int
    replies: int


def main() -> None:
    """Run the server. Arguments: the folder to work in, the limits as JSON, the steps to leave out as JSON."""
    requests, replies = _move_standard_streams()
    folder, limits, without = sys.argv[1], Limits(**json.loads(sys.argv[2])), json.loads(sys.argv[3])
    for name in _LOADED_FOR_PROGRAMS:
        __import__(name)
    try:
        confinement = confine_server(folder, without)
    except Exception as error:
        write_message(replies, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    write_message(replies, json.dumps(asdict(confinement)).encode())
    server = _Server(folder, limits, confinement, requests, replies)
    while (message := read_message(requests)) is not None:
        write_message(replies, _run(server, Program(**json.loads(message))))


def _move_standard_streams() -> tuple[int, int]:
    """Duplicate the standard streams for the server's own use, and give /dev/null to programs instead."""
    channels = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    return channels


def _run(server: _Server, program: Program) -> bytes:
    try:
        with workplace(server.folder, server.confinement, server.limits) as place:
            reading, report_to = os.pipe()
            token_from, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reading)
                os.close(writing)
                _run_in_child(server, program, place, report_to, token_from)
            os.close(report_to)
            os.close(token_from)
            try:
                with os.fdopen(writing, "wb", buffering=0) as token_to:
                    waiting = _Child(child, reading, token_to)
                    return _await_report(waiting, server.requests, program.seconds + _GRACE)
            finally:
                _end(child, server.confinement)
                os.close(reading)
    except OSError as error:
        return json.dumps({"error": str(error)}).encode()


# -- the child --------------------------------------------------------------------------------------------------------


class _TimeoutException(Exception):  # noqa: N818 - programs may see it
    pass


def _run_in_child(server: _Server, program: Program, place: str, report_to: int, token_from: int) -> NoReturn:
    write, leave = os.write, os._exit
    try:
        os.close(server.requests)
        os.close(server.replies)
        confine_program(server.folder, place, server.confinement, server.limits, program.seconds)
        for name in program.imports:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        exec(program.setup, {})  # noqa: S102 - trusted
        random.seed(0)
        write(report_to, _BEGUN)
    except BaseException as error:
        write(report_to, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n")
        leave(1)
    write(report_to, _execute(program, report_to, token_from))
    leave(0)


def _execute(program: Program, report_to: int, token_from: int) -> bytes:
    """Run the program. Reaching its end does not return; the report that is returned says how it failed.

    Success is reported by the token, which this process reads only after the setup. No variable and no object refers to
    the token while the program runs: ``bytearray.extend`` holds what it has read internally until it has everything,
    and drops it if an exception is raised.
    """
    dumps, read, run, stop, write = json.dumps, os.read, exec, signal.setitimer, os.write
    leave, getpid, own_pid = os._exit, os.getpid, os.getpid()

    def token_and_then_the_program() -> Iterator[int]:
        yield from read(token_from, _TOKEN_BYTES)
        run(program.source, {})
        stop(signal.ITIMER_REAL, 0)

    token = bytearray()
    signal.signal(signal.SIGALRM, _raise_timeout)
    stop(signal.ITIMER_REAL, program.seconds)
    try:
        try:
            token.extend(token_and_then_the_program())
        finally:
            stop(signal.ITIMER_REAL, 0)
        if getpid() == own_pid:
            write(report_to, token)
        leave(0)
    except _TimeoutException:
        report = {"ending": "timed_out"}
    except BaseException as error:
        report = {"ending": "raised", "message": f"{error}"[:_LONGEST_MESSAGE]}
    return b"" if getpid() != own_pid else dumps(report).encode() + b"\n"


def _raise_timeout(_: int, __: FrameType | None) -> None:
    raise _TimeoutException("Timed out!")


# -- its parent -------------------------------------------------------------------------------------------------------


class _Child(NamedTuple):
    pid: int
    reports: int
    """To be read."""
    token_to: IO[bytes]
    """To be written once, and closed."""


def _await_report(child: _Child, requests: int, seconds: float) -> bytes:
    """Return the child's report, or one that says that it died or took too long."""
    deadline = time.monotonic() + _PREPARATION_SECONDS
    os.set_blocking(child.reports, False)
    poll = select.poll()
    poll.register(child.reports, select.POLLIN)
    poll.register(requests, 0)  # reports when the other end is closed
    end = os.pidfd_open(child.pid) if hasattr(os, "pidfd_open") else None
    if end is not None:
        poll.register(end, select.POLLIN)
    token, report = b"", b""
    try:
        while (left := deadline - time.monotonic()) > 0:
            ready = dict(poll.poll(1000 * (left if end is not None else min(left, _LOOK_EVERY))))
            if requests in ready:
                _end(child.pid, None)
                raise SystemExit
            ended = end in ready if end is not None else os.waitid(os.P_PID, child.pid, _LOOK) is not None
            try:
                part = os.read(child.reports, _LONGEST_REPORT)
            except BlockingIOError:
                part = None
            if not token and part == _BEGUN:
                token = (
                    os.urandom(_TOKEN_BYTES // 2).hex().encode()
                )  # made after the fork, so that the child has no copy
                child.token_to.write(token)
                child.token_to.close()
                deadline = time.monotonic() + seconds
                continue
            report += part or b""
            if token and report == token:
                return b'{"ending": "finished"}'
            if b"\n" in report or len(report) > _LONGEST_REPORT:
                return _checked(report, has_begun=bool(token))
            if ended or part == b"":
                return b'{"ending": "died"}'
        return b'{"ending": "timed_out"}'
    finally:
        if end is not None:
            os.close(end)


_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT


def _checked(report: bytes, *, has_begun: bool) -> bytes:
    """Validate a report: a program can write anything to the pipe, and only the token proves that it finished."""
    line = report.partition(b"\n")[0]
    try:
        parsed = json.loads(line)
        if has_begun:
            if Ending(parsed["ending"]) is Ending.FINISHED or "error" in parsed:
                raise ValueError
        elif not parsed["error"]:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return b'{"ending": "died"}'
    return line


def _end(child: int, confinement: Confinement | None) -> None:
    """Kill the child and all processes that it started."""
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except OSError:
            continue
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        return
    if confinement is not None and not confinement.system_calls:
        _sweep(all_others=confinement.namespaces)


def _sweep(*, all_others: bool) -> None:
    """Kill processes that outlived the child.

    Args:
        all_others: kill every other process of the namespace, whose process 1 this is. Else kill this process's own
            children: orphans that had left the child's process group have become that.
    """
    for _ in range(_MOST_SWEEPS):
        for orphan in [-1] if all_others else _own_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _own_children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []
