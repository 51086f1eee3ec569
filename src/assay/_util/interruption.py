"""Ctrl-C and SIGTERM: they end what goes on, in one line, and are never lost."""

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
_PATIENCE = 2.0
"""Seconds after which a signal that has ended nothing comes again."""


@contextmanager
def interruptible(journals: Path) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C stop this block, with an error that says how to go on.

    SIGTERM does so also where SIGINT is ignored, as shells have it for jobs in the background, and may come more than
    once, as ``timeout`` sends it. What the block does in an event loop is run by :func:`run_stoppable`.

    Args:
        journals: where the answers so far are kept.

    Raises:
        RunInterrupted: the block was stopped.
    """
    stop = Stop()
    try:
        with stop.handling(*_taken_over()):
            yield
    except BaseException as error:
        if not (stop.received or isinstance(error, KeyboardInterrupt | _cancelled_error())):
            raise
        # Whatever the error says: a library that is stopped while it is imported may call that an ImportError.
        number = stop.received[0] if stop.received else signal.SIGINT
        raise RunInterrupted(
            f"stopped by {signal.Signals(number).name}; answers so far are kept in {journals}, "
            "run the same command again to go on",
            exit_code=128 + number,
        ) from None


def _taken_over() -> tuple[int, ...]:
    """SIGTERM, and SIGINT unless it is ignored or somebody else's."""
    sigint = signal.getsignal(signal.SIGINT)
    if sigint is signal.default_int_handler or isinstance(sigint, Stop):
        return signal.SIGINT, signal.SIGTERM
    return (signal.SIGTERM,)


def run_stoppable(runner: asyncio.Runner, work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` to its end; in an :func:`interruptible` block SIGTERM and Ctrl-C cancel it.

    Args:
        runner: runs it.
        work: is cancelled once, however often SIGTERM comes, and may tidy up; a second Ctrl-C does not wait for that.
    """
    stop = signal.getsignal(signal.SIGTERM)
    watched = stop.watch(work) if isinstance(stop, Stop) and _in_main_thread() else work
    try:
        return runner.run(watched)
    finally:
        watched.close()  # without a warning that it was never awaited, where a signal came before that
        work.close()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let this block end before SIGTERM or Ctrl-C takes effect; in another thread than the main one, do nothing."""
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
    """Whether Ctrl-C came while a :class:`Stop` handles it."""
    stop = signal.getsignal(signal.SIGINT)
    return isinstance(stop, Stop) and bool(stop.received)


class Stop:
    """A signal's handler: cancels what an event loop runs, raises KeyboardInterrupt where no loop runs.

    A handler runs between any two instructions. Within a loop, what it raises may be lost: the HTTP parser makes a
    malformed reply of it, which is asked for again; of a finaliser it is ignored; and a task whose turn it cuts off is
    waited for without end. Where no loop runs it may be lost as well, mostly in an import: in a finaliser, or in a
    library that takes any exception for its own. Then the signal comes again, until the handled block has ended.
    A loop that has not heard of it after two seconds is kept by code that does not end, such as a task's scorer; the
    asyncio task that runs it ends as a cancelled one.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._work: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        self._unheard_since: float | None = None
        """When a loop was told to cancel its work, as long as it has not begun to."""
        self._is_over = False
        self._process = os.getpid()

    @contextmanager
    def handling(self, *numbers: int) -> Iterator[None]:
        """Handle these signals while the block runs; in another thread than the main one, none."""
        if not _in_main_thread():
            yield
            return
        unraisable = sys.unraisablehook
        previous = {number: signal.getsignal(number) for number in numbers}
        try:
            sys.unraisablehook = self._raise_again
            for number in numbers:
                signal.signal(number, self)
            yield
        finally:
            self._is_over = True
            sys.unraisablehook = unraisable
            for number, handler in previous.items():
                signal.signal(number, handler)

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Take a signal."""
        if os.getpid() != self._process:
            raise KeyboardInterrupt  # A child that was forked off inherits the handler, not what it would stop.
        self.received.append(number)
        loop = running_loop()
        if loop is None:
            self._come_again(number, _PATIENCE)
            raise KeyboardInterrupt
        if self._loop_is_kept():
            self._come_again(number, _PATIENCE)
            raise _cancelled_error()
        if self._is_cancelled and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self._is_cancelled:
            self._is_cancelled = True
            self._unheard_since = time.monotonic()
            self._come_again(number, _PATIENCE)
        loop.call_soon_threadsafe(self._cancel)

    def _loop_is_kept(self) -> bool:
        return self._unheard_since is not None and time.monotonic() - self._unheard_since >= _PATIENCE

    async def watch(self, work: Coroutine[Any, Any, _T]) -> _T:
        """`work`, as that which is to be cancelled."""
        import asyncio

        self._work = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            self._unheard_since = None
            raise
        finally:
            self._work = None

    def _cancel(self) -> None:
        if self._unheard_since is None:
            return
        self._unheard_since = None
        if self._work is None:
            raise KeyboardInterrupt
        self._work.cancel()

    def _raise_again(self, ignored: sys.UnraisableHookArgs) -> None:
        if self.received and isinstance(ignored.exc_value, KeyboardInterrupt):
            self._come_again(self.received[-1], 0.01)
        else:
            sys.__unraisablehook__(ignored)

    def _come_again(self, number: int, seconds: float) -> None:
        # Not a threading.Thread: its locks may be held by what the handler has interrupted.
        _thread.start_new_thread(self._send_again, (number, seconds))

    def _send_again(self, number: int, seconds: float) -> None:
        time.sleep(seconds)
        main = threading.main_thread().ident
        was_heard = self._is_cancelled and self._unheard_since is None
        if main is not None and not self._is_over and not was_heard:
            signal.pthread_kill(main, number)


def _cancelled_error() -> type[BaseException]:
    import asyncio

    return asyncio.CancelledError


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
