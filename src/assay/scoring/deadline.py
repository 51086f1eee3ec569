"""A time limit for code that Assay does not control: on hostile model output a regular expression may never end."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SCORING_SECONDS = 30.0
"""Time limit for scoring one sample."""
_LOOKS_PER_LIMIT = 4
_LOOK_EVERY = 0.5
"""Seconds, at most."""


class DeadlineError(Exception):
    """The code in the block ran too long."""


class Deadline:
    """A context manager for many short blocks, each of which is interrupted when it runs longer than `seconds`.

    Each block reads the clock twice. Interruption works only inside :meth:`watching` and in the main thread: Python's
    ``re`` checks for signals while it backtracks, and signals reach only the main thread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = self._limit = seconds
        self._entered: float | None = None
        self._has_passed = False
        self._is_watching = False

    def within(self, seconds: float) -> Self:
        """This deadline, with a shorter limit for the next block only."""
        self._limit = min(seconds, self._seconds)
        return self

    def __enter__(self) -> Self:
        self._has_passed = False
        self._entered = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._entered = None
        limit, self._limit = self._limit, self._seconds
        if self._has_passed:
            raise DeadlineError(_words(limit))  # even if the code in the block swallowed the exception

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Check the clock periodically while this block runs."""
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
            yield
            return
        previous = signal.getsignal(signal.SIGALRM)
        self._arm()
        self._is_watching = True
        try:
            yield
        finally:
            self._is_watching = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)

    def restore(self) -> None:
        """Set the alarm again after code that may have used it itself."""
        if self._is_watching and not self._is_armed():
            self._arm()

    def _arm(self) -> None:
        signal.signal(signal.SIGALRM, self._look)
        every = min(self._seconds / _LOOKS_PER_LIMIT, _LOOK_EVERY)
        signal.setitimer(signal.ITIMER_REAL, every, every)

    def _is_armed(self) -> bool:
        _, every = signal.getitimer(signal.ITIMER_REAL)
        return every > 0 and signal.getsignal(signal.SIGALRM) == self._look

    def _look(self, _: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is Deadline.__exit__.__code__:
            return  # The block is over; an exception here would leave the deadline active.
        if self._entered is not None and time.monotonic() - self._entered > self._limit:
            self._has_passed = True
            raise DeadlineError(_words(self._limit))


def _words(seconds: float) -> str:
    return f"scoring took longer than {seconds:g} s"
