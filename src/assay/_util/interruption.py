"""Runs that are stopped from outside, and say how to go on."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import RunInterrupted

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path
    from types import FrameType

_T = TypeVar("_T")


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
    stop = _Stop()
    in_main_thread = _in_main_thread()
    previous = signal.getsignal(signal.SIGTERM)
    try:
        try:
            if in_main_thread:
                signal.signal(signal.SIGTERM, stop)
            yield
        finally:
            if in_main_thread:
                signal.signal(signal.SIGTERM, previous)
    except (KeyboardInterrupt, asyncio.CancelledError):
        number = stop.received[0] if stop.received else signal.SIGINT
        raise RunInterrupted(
            f"stopped by {signal.Signals(number).name}; answers so far are kept in {journals}, "
            "run the same command again to go on",
            exit_code=128 + number,
        ) from None


def run_stoppable(runner: asyncio.Runner, work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` to its end; in an :func:`interruptible` block SIGTERM cancels it, as Ctrl-C does wherever it runs.

    Args:
        runner: runs it.
        work: is cancelled once, however often the signal comes, and may tidy up.
    """
    stop = signal.getsignal(signal.SIGTERM)
    return runner.run(stop.watch(work) if isinstance(stop, _Stop) and _in_main_thread() else work)


class _Stop:
    """SIGTERM's handler in an interruptible block: cancels what an event loop runs, raises where no loop runs.

    A handler runs between any two instructions. Within a loop, what it raises may be lost: the HTTP parser makes a
    malformed reply of it, which is asked for again; of a finaliser it is ignored; and a task whose turn it cuts off is
    waited for without end.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._work: asyncio.Task[Any] | None = None

    def __call__(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise KeyboardInterrupt from None
        loop.call_soon_threadsafe(self._cancel)

    async def watch(self, work: Coroutine[Any, Any, _T]) -> _T:
        """`work`, as that which is to be cancelled."""
        self._work = asyncio.current_task()
        try:
            return await work
        finally:
            self._work = None

    def _cancel(self) -> None:
        if self._work is None:
            raise KeyboardInterrupt
        if not self._work.cancelling():
            self._work.cancel()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
