"""Handles Ctrl-C and SIGTERM: a run stops with a one-line error, and no signal is lost."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from assay._util.event_loops import running_loop
from assay.errors import RunInterrupted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine, Iterator
    from pathlib import Path
    from types import FrameType

_T = TypeVar("_T")
_RESEND_AFTER = 2.0
"""Seconds after which a signal that has stopped nothing is sent again."""


@contextmanager
def interruptible(journals: Path) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C stop this block with an error that says how to resume.

    SIGTERM works even where SIGINT is ignored, as shells do for background jobs. It may come more than once, as from
    ``timeout``. Run asynchronous code in the block with :func:`run_stoppable`.

    Args:
        journals: where the answers so far are kept.

    Raises:
        RunInterrupted: the block was stopped.
    """
    stop = Stop()
    try:
        with stop.handling(*_signals_to_handle()):
            yield
    except BaseException as error:
        if not (stop.received or isinstance(error, KeyboardInterrupt | _cancelled_error())):
            raise
        # Any error counts: a library that is interrupted during its import may raise ImportError.
        number = stop.received[0] if stop.received else signal.SIGINT
        raise RunInterrupted(
            f"stopped by {signal.Signals(number).name}; answers so far are kept in {journals}, "
            "run the same command again to go on",
            exit_code=128 + number,
        ) from None


def _signals_to_handle() -> tuple[int, ...]:
    """SIGTERM, and SIGINT unless it is ignored or has a custom handler."""
    sigint = signal.getsignal(signal.SIGINT)
    if sigint is signal.default_int_handler or isinstance(sigint, Stop):
        return signal.SIGINT, signal.SIGTERM
    return (signal.SIGTERM,)


def run_stoppable(runner: asyncio.Runner, work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` to its end. In an :func:`interruptible` block, SIGTERM and Ctrl-C cancel it.

    Args:
        runner: runs it.
        work: is cancelled only once, however often SIGTERM comes, so that it can clean up. A second Ctrl-C stops that.
    """
    stop = signal.getsignal(signal.SIGTERM)
    watched = stop.watch(work) if isinstance(stop, Stop) and _in_main_thread() else work
    try:
        return runner.run(watched)
    finally:
        watched.close()  # avoids "was never awaited" if a signal came first
        work.close()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay SIGTERM and Ctrl-C until this block ends. Does nothing outside the main thread."""
    came: list[int] = []
    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM) if _in_main_thread() else ()
    previous = {number: handler for number in numbers if (handler := signal.getsignal(number)) is not None}
    try:
        for number in previous:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def is_stopping() -> bool:
    """Whether the :class:`Stop` that handles Ctrl-C has received a signal."""
    stop = signal.getsignal(signal.SIGINT)
    return isinstance(stop, Stop) and bool(stop.received)


class Stop:
    """A signal handler: cancels the work of a running event loop, or raises KeyboardInterrupt where no loop runs.

    A handler runs between any two instructions, so an exception from it can get lost. Inside a loop, the HTTP parser
    takes it for a malformed reply and asks again; a finaliser ignores it; and an asyncio task that it breaks off may be
    awaited forever. So the handler cancels instead of raising. Without a loop the exception can get lost too, mostly
    during an import: in a finaliser, or in a library that catches everything. So the signal is sent again until the
    handled block has ended. A loop that does not react within two seconds is blocked by code such as a task's scorer;
    then CancelledError is raised in that code.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._work: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        self._pending_since: float | None = None
        """When the loop was asked to cancel its work; None once it has started to."""
        self._is_over = False
        self._process = os.getpid()

    @contextmanager
    def handling(self, *numbers: int) -> Iterator[None]:
        """Handle these signals while the block runs. Does nothing outside the main thread."""
        if not _in_main_thread():
            yield
            return
        unraisable = sys.unraisablehook
        previous = {number: signal.getsignal(number) for number in numbers}
        try:
            sys.unraisablehook = self._on_unraisable
            for number in numbers:
                signal.signal(number, self)
            yield
        finally:
            self._is_over = True
            sys.unraisablehook = unraisable
            for number, handler in previous.items():
                signal.signal(number, handler)

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Handle a signal."""
        if os.getpid() != self._process:
            raise KeyboardInterrupt  # a forked child inherits the handler, but not the work to cancel
        self.received.append(number)
        loop = running_loop()
        if loop is None:
            self._resend(number, _RESEND_AFTER)
            raise KeyboardInterrupt
        if self._loop_is_blocked():
            self._resend(number, _RESEND_AFTER)
            raise _cancelled_error()
        if self._is_cancelled and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self._is_cancelled:
            self._is_cancelled = True
            self._pending_since = time.monotonic()
            self._resend(number, _RESEND_AFTER)
        loop.call_soon_threadsafe(self._cancel)

    def _loop_is_blocked(self) -> bool:
        return self._pending_since is not None and time.monotonic() - self._pending_since >= _RESEND_AFTER

    async def watch(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await `work`, and cancel it when a signal comes."""
        import asyncio

        self._work = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            self._pending_since = None
            raise
        finally:
            self._work = None

    def _cancel(self) -> None:
        if self._pending_since is None:
            return
        self._pending_since = None
        if self._work is None:
            raise KeyboardInterrupt
        self._work.cancel()

    def _on_unraisable(self, ignored: sys.UnraisableHookArgs) -> None:
        if self.received and isinstance(ignored.exc_value, KeyboardInterrupt):
            self._resend(self.received[-1], 0.01)
        else:
            sys.__unraisablehook__(ignored)

    def _resend(self, number: int, seconds: float) -> None:
        # Not a threading.Thread: its locks may be held by what the handler has interrupted.
        _thread.start_new_thread(self._resend_after, (number, seconds))

    def _resend_after(self, number: int, seconds: float) -> None:
        time.sleep(seconds)
        main = threading.main_thread().ident
        was_heard = self._is_cancelled and self._pending_since is None
        if main is not None and not self._is_over and not was_heard:
            signal.pthread_kill(main, number)


def _cancelled_error() -> type[BaseException]:
    import asyncio

    return asyncio.CancelledError


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
