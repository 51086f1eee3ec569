"""Complete samples are handed on some at a time.

What a request leaves in the processor's caches is of no use to scoring, and the other way round: one sample after
another is scored in less than half the time that each takes between two requests (docs/benchmarks.md).
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

TOGETHER = 32
_SOON = 0.01
"""Seconds that a sample waits for others at most."""


class CompletionBatcher:
    """Hands complete samples on, in the order of completion.

    Args:
        complete: takes samples with their responses.
        observer: is told afterwards.
        tasks: in which samples wait, so that what `complete` raises stops all.
        together: samples that are handed on at once.
    """

    def __init__(
        self,
        complete: Complete,
        observer: Progress,
        tasks: asyncio.TaskGroup,
        together: int = TOGETHER,
    ) -> None:
        self._complete = complete
        self._observer = observer
        self._tasks = tasks
        self._together = together
        self._waiting: list[CompleteSample] = []
        self._is_due = False
        self._happened = asyncio.Event()

    def add(self, sample: Sample, responses: Sequence[Response]) -> None:
        """A sample is complete."""
        self._waiting.append(CompleteSample(sample, responses))
        if len(self._waiting) >= self._together:
            self._hand_on()
        elif not self._is_due:
            self._is_due = True
            self._tasks.create_task(self._hand_on_soon())

    async def next(self) -> None:
        """Wait until more samples have been handed on."""
        if self._waiting:
            self._hand_on()
        else:
            self._happened.clear()
            await self._happened.wait()

    async def _hand_on_soon(self) -> None:
        await asyncio.sleep(_SOON)
        self._is_due = False
        self._hand_on()

    def _hand_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._complete(waiting)
        for sample, responses in waiting:
            self._observer.completed(sample, responses)
        self._happened.set()
