"""Running coroutines from synchronous code, with or without a running event loop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

_T = TypeVar("_T")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread. Works before asyncio is imported, and while it is being imported."""
    running = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    loop: asyncio.AbstractEventLoop | None = None if running is None else running()
    return loop


def refuse_inside_event_loop(call: str, instead: str) -> None:
    """Refuse a synchronous call inside a running event loop.

    Args:
        call: the name of the function that was called.
        instead: the code to write in its place.

    Raises:
        UsageError: an event loop runs in this thread.
    """
    if running_loop() is not None:
        raise UsageError(
            f"{call}() cannot be called inside a running event loop (a notebook, an async function): write "
            f"`{instead}` there"
        )


def run_without_loop(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, without an event loop, and return its result.

    Raises:
        RuntimeError: the coroutine suspended.
    """
    try:
        work.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    work.close()
    raise RuntimeError("a coroutine suspended where no event loop runs")
