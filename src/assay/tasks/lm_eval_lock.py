"""A lock around lm-eval and its tasks, whose state belongs to the process: random streams, data set loader, output.

Whatever loads tasks, writes their prompts or scores with them holds it.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from assay._util.event_loops import running_loop
from assay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_lock = threading.Lock()
_LOOK_AGAIN = 0.05
"""Seconds between two looks at whether others have ended."""


@contextmanager
def lm_eval_lock(call: str) -> Iterator[None]:
    """Wait until no other thread or event loop uses tasks, and keep them waiting while the block runs.

    Args:
        call: the name of the function that waits, for the message.

    Raises:
        UsageError: an event loop runs in this thread, and waiting would stop it.
    """
    if not _lock.acquire(blocking=False):
        if running_loop() is not None:
            raise UsageError(
                f"{call}() has to wait for a run that goes on in this process, and would stop the event loop: there, "
                f"write `await asyncio.to_thread({call}, …)`"
            )
        _lock.acquire()
    try:
        yield
    finally:
        _lock.release()


@asynccontextmanager
async def async_lm_eval_lock() -> AsyncIterator[None]:
    """:func:`lm_eval_lock` for coroutines; the event loop goes on meanwhile."""
    while not _lock.acquire(blocking=False):  # a thread that waits for it could not be cancelled
        await asyncio.sleep(_LOOK_AGAIN)
    try:
        yield
    finally:
        _lock.release()
