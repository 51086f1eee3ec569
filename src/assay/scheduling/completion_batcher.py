"""Passes complete samples on in batches.

Requests and scoring evict each other from the processor's caches: scoring a batch takes less than half the time of
scoring each sample between two requests (docs/benchmarks.md).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from assay.types import CompleteSample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.progress import Progress
    from assay.types import Response, Sample

    Complete = Callable[[Sequence[CompleteSample]], None]

BATCH_SIZE = 32
_LONGEST_WAIT = 0.01
"""Seconds for which a sample waits for others."""


class CompletionBatcher:
    """Passes complete samples on, in the order of completion.

    Args:
        complete: called with samples and their responses.
        observer: notified after that, for each sample.
        tasks: run the timer of an incomplete batch. What `complete` raises there stops the whole group.
        batch_size: samples passed on at once.
    """

    def __init__(
        self,
        complete: Complete,
        observer: Progress,
        tasks: asyncio.TaskGroup,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        self._complete = complete
        self._observer = observer
        self._tasks = tasks
        self._batch_size = batch_size
        self._waiting: list[CompleteSample] = []
        self._is_due = False
        self._handed_on = asyncio.Event()

    def add(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Add a complete sample."""
        self._waiting.append(CompleteSample(sample, responses))
        if len(self._waiting) >= self._batch_size:
            self._hand_on()
        elif not self._is_due:
            self._is_due = True
            self._tasks.create_task(self._hand_on_soon())

    async def next(self) -> None:
        """Pass waiting samples on now; if none is waiting, wait for the next ones."""
        if self._waiting:
            self._hand_on()
        else:
            self._handed_on.clear()
            await self._handed_on.wait()

    async def _hand_on_soon(self) -> None:
        await asyncio.sleep(_LONGEST_WAIT)
        self._is_due = False
        self._hand_on()

    def _hand_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._complete(waiting)
        for sample, responses in waiting:
            self._observer.completed(sample, responses)
        self._handed_on.set()
