"""Runs that are stopped from outside, and say how to go on."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from assay.errors import RunInterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType


@contextmanager
def interruptible(journals: Path) -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C in this block, and turn either into an error that says how to go on.

    Args:
        journals: where the answers so far are kept.

    Raises:
        RunInterrupted: the block was stopped.
    """
    received: list[int] = []

    def as_interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        on_interrupt = signal.getsignal(signal.SIGINT)
        if not callable(on_interrupt):  # ignored, as a shell does it for jobs in the background
            raise KeyboardInterrupt
        on_interrupt(signal.SIGINT, frame)

    in_main_thread = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, as_interrupt) if in_main_thread else None
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        number = received[0] if received else signal.SIGINT
        raise RunInterrupted(
            f"stopped by {signal.Signals(number).name}; answers so far are kept in {journals}, "
            "run the same command again to go on",
            exit_code=128 + number,
        ) from None
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, previous)
