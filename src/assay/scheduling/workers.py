"""A pool of workers that grows and shrinks with the concurrency limit."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.client.concurrency import Concurrency, ServerLoad
    from assay.progress import Progress

_LOAD_EVERY = 1.0
"""Seconds between queries of the server's load."""


class WorkerPool:
    """Workers that repeat `step` until no work is left.

    Args:
        step: does the next piece of work; returns False if there is none.
        concurrency: limits the number of workers.
        observer: notified when that limit changes.
        tasks: runs the workers. What a step raises stops the whole group.
    """

    def __init__(
        self,
        step: Callable[[], Awaitable[bool]],
        concurrency: Concurrency,
        observer: Progress,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._step = step
        self._concurrency = concurrency
        self._observer = observer
        self._tasks = tasks
        self._size = 0
        self._announced = 0
        self._is_done = False
        self._workers: set[asyncio.Task[None]] = set()
        self._background: list[asyncio.Task[None]] = []
        """What runs only as long as there are workers."""

    def start(
        self,
        load: Callable[[], Awaitable[ServerLoad | None]] | None = None,
        until: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Start the first workers.

        Args:
            load: asks the server for its load, if the concurrency needs it. It returns None if the server does not
                report its load, and raises OSError if it may do so later.
            until: when it returns, all workers are cancelled in the middle of their work.
        """
        if load is not None and self._concurrency.is_searching:
            self._background.append(self._tasks.create_task(self._watch(load)))
        if until is not None:
            self._background.append(self._tasks.create_task(self._stop_after(until)))
        self._start_workers()

    def _start_workers(self) -> None:
        limit = self._concurrency.limit
        if limit != self._announced:
            self._announced = limit
            self._observer.limited(limit)
        while self._size < limit and not self._is_done:
            self._size += 1
            worker = self._tasks.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._left)

    async def _work(self) -> None:
        while self._size <= self._concurrency.limit:
            if not await self._step():
                self._is_done = True
                break
            self._start_workers()
        self._size -= 1

    def _left(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not self._workers:
            for task in self._background:
                task.cancel()

    async def _stop_after(self, until: Callable[[], Awaitable[None]]) -> None:
        await until()
        self._is_done = True
        for worker in self._workers:
            worker.cancel()

    async def _watch(self, load: Callable[[], Awaitable[ServerLoad | None]]) -> None:
        now = asyncio.get_running_loop().time
        while True:
            with suppress(OSError):
                seen = await load()
                if seen is None:
                    return
                self._concurrency.loaded(seen, now())
                self._observer.server_busy(seen.running, seen.waiting)
                self._start_workers()
            await asyncio.sleep(_LOAD_EVERY)
