"""Time for tests, in which minutes pass in no time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

PATIENT = 1e5
"""Seconds to wait for a server at most: minutes, however fast the time, on a machine that is busy with other things."""


class VirtualTime:
    """Stands still while anything runs, then jumps to the next sleeper. For code that waits for nothing but sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), woken))
        await woken

    async def run(self, work: Coroutine[None, None, T]) -> T:
        task = asyncio.create_task(work)
        while not task.done():
            for _ in range(50):
                await asyncio.sleep(0)
            if task.done():
                break
            assert self._sleepers, "everything waits, and nothing will happen"
            at, _, woken = heapq.heappop(self._sleepers)
            self.now = max(self.now, at)
            if not woken.done():
                woken.set_result(None)
        return task.result()


class FastTime:
    """Real time sped up, for code that also waits for a real server."""

    def __init__(self, speed: float = 200.0) -> None:
        self.speed = speed

    def clock(self) -> float:
        return time.monotonic() * self.speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)
