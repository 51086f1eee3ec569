"""Code that waits where an event loop runs, and where none does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

_T = TypeVar("_T")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread; asyncio may not be imported yet, or not to its end."""
    running = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    loop: asyncio.AbstractEventLoop | None = None if running is None else running()
    return loop


def refuse_inside_event_loop(call: str, instead: str) -> None:
    """Refuse a call where an event loop runs in this thread.

    Args:
        call: the function's name.
        instead: what to write there.

    Raises:
        UsageError: one runs.
    """
    if running_loop() is not None:
        raise UsageError(
            f"{call}() cannot be called where an event loop runs (a notebook, an async function): there, write "
            f"`{instead}`"
        )


def result_of(work: Coroutine[Any, Any, _T]) -> _T:
    """What a coroutine returns that never suspends, with no event loop running while it runs.

    Raises:
        RuntimeError: it did suspend.
    """
    try:
        work.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    work.close()
    raise RuntimeError("a coroutine that was to run without an event loop waits for something")
