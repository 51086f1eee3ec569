"""Runs a command as a child process, and shows and logs its output. The child never outlives the call."""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_ENDING_SIGNALS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
"""Signals that end a process, with the handler under which they do."""
_POLL_SECONDS = 0.2


def run_shown(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path, held: Sequence[int]
) -> int:
    """Run a command until it ends or a signal is held, show and log its output, and return its exit status.

    No process that it started outlives this call.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with log.open("wb") as kept:
        process = subprocess.Popen(  # noqa: S603 - the command is this module's own
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            for chunk in _output(process, held):
                kept.write(chunk)
                kept.flush()
                _show(decoder.decode(chunk))
        finally:
            _end_group(process)
            status = process.wait()
    return status


def _output(process: subprocess.Popen[bytes], held: Sequence[int]) -> Iterator[bytes]:
    """What a process prints, as it comes."""
    with cast("IO[bytes]", process.stdout) as pipe, selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while not held:
            # Asked before reading, so that whatever was printed before the end is still read.
            has_ended = process.poll() is not None
            if has_ended:
                _end_group(process)
            if selector.select(0 if has_ended else _POLL_SECONDS):
                if chunk := os.read(pipe.fileno(), 1 << 16):
                    yield chunk
                    continue
                _await_end(process, held)
                return
            if has_ended:
                return


def _await_end(process: subprocess.Popen[bytes], held: Sequence[int]) -> None:
    while not held and process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those that it started; lm-eval would save nothing on a gentler signal."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _show(text: str) -> None:
    if sys.stdout is not None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()


@contextlib.contextmanager
def ending_signals_held() -> Iterator[list[int]]:
    """Hold back signals that would end this process until the context closes.

    A handler of the caller's own is left alone: what it raises passes through the context.
    """
    held: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    ours = [number for number, ending in _ENDING_SIGNALS.items() if signal.getsignal(number) == ending]
    for number in ours:
        signal.signal(number, lambda received, _: held.append(received))
    try:
        yield held
    finally:
        for number in ours:
            signal.signal(number, _ENDING_SIGNALS[number])
        if held:
            signal.raise_signal(held[0])
