"""Samples are built when a worker is free, asked, journaled, and handed on when complete.

Nothing here knows what a task or a server is; order, concurrency and interruptions change no result.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from assay.engine.completion_batcher import TOGETHER, CompletionBatcher
from assay.engine.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from assay.engine.completion_batcher import Complete
    from assay.models.concurrency import Concurrency, ServerLoad
    from assay.progress import Progress
    from assay.types import Request, Response, Sample

    Prepare = Callable[[Sample, Sequence[Response]], Coroutine[Any, Any, None] | None]


class Model(Protocol):
    """Where answers come from."""

    async def ask(self, request: Request) -> Response:
        """Answer `request`, or say as data why there is no answer."""


class Record(Protocol):
    """The durable record of answers."""

    def lookup(self, key: str) -> Response | None:
        """The answer kept for this request, if there is one."""

    def append(self, request: Request, response: Response) -> None:
        """Keep a response; it is durable when this returns."""


async def ask_all(
    samples: Iterator[Sample | None],
    model: Model,
    record: Record,
    complete: Complete,
    *,
    concurrency: Concurrency,
    observer: Progress,
    prepare: Prepare = lambda *_: None,
    load: Callable[[], Awaitable[ServerLoad | None]] | None = None,
    together: int = TOGETHER,
) -> None:
    """Put every sample's requests to `model` and hand samples to `complete` soon after their last response is in.

    Args:
        samples: the work, in the order in which it should leave; drawn from only when a worker is free. None in it
            means that nothing more may be asked before another sample is complete.
        model: answers; whatever it raises stops all work (an unanswered request is data, not an exception).
        record: answers that it already has are not asked for again.
        complete: called in the order of completion.
        concurrency: says how many requests may be outstanding, and is told of each.
        observer: is told of every response and every complete sample.
        prepare: gives what a sample must wait for between its last response and `complete`, while others go on; None
            where that is nothing.
        load: asks the server for its load, see :meth:`WorkerPool.begin`.
        together: samples that are drawn at once, and handed on at once when complete, because one after another costs
            half of one at a time (see :mod:`assay.engine.completion_batcher`); 1 where what is asked next depends on
            what is complete.
    """
    now = asyncio.get_running_loop().time

    async def ask_next() -> bool:
        while not queue.ready:
            if not await queue.draw():
                return False
        pending, place = queue.ready.popleft()
        request = pending.sample.requests[place]
        sent = concurrency.sent(now())
        response = await model.ask(request)
        record.append(request, response)
        concurrency.ended(sent, request.task, response, now())
        observer.responded(request, response)
        queue.fill_in(pending, place, response)
        return True

    try:
        async with asyncio.TaskGroup() as tasks:
            batcher = CompletionBatcher(complete, observer, tasks, together)
            queue = _Queue(samples, record, batcher, prepare, tasks, together)
            WorkerPool(ask_next, concurrency, observer, tasks).begin(load)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


class _Pending:
    """A sample some of whose responses are still out."""

    __slots__ = ("missing", "responses", "sample")

    def __init__(self, sample: Sample, kept: list[Response | None]) -> None:
        self.sample = sample
        self.responses = kept
        self.missing = kept.count(None)


class _Queue:
    """Requests that still need asking, drawn lazily from the samples; shared by all workers."""

    def __init__(
        self,
        samples: Iterator[Sample | None],
        record: Record,
        batcher: CompletionBatcher,
        prepare: Prepare,
        tasks: asyncio.TaskGroup,
        together: int,
    ) -> None:
        self._samples = samples
        self._record = record
        self._batcher = batcher
        self._prepare = prepare
        self._tasks = tasks
        self._together = together
        self._at_once = 1
        """Samples drawn next: a single one at first, so that its requests leave without delay."""
        self.ready: deque[tuple[_Pending, int]] = deque()
        """Which responses of which samples are to be asked for next."""

    async def draw(self) -> bool:
        """Start the next samples; whether there were any. Where nothing may be asked yet, wait for one to be complete.

        Others may take what there is to be asked while this waits.
        """
        sample, drawn = None, 0
        for sample in islice(self._samples, self._at_once):
            drawn += 1
            if sample is None:
                break
            self._start(sample)
        if not drawn:
            return False
        self._at_once = min(2 * self._at_once, self._together)
        if not self.ready:
            # With all answers kept, let others have a turn: the next ones may be kept as well.
            await (self._batcher.next() if sample is None else asyncio.sleep(0))
        return True

    def _start(self, sample: Sample) -> None:
        pending = _Pending(sample, [self._record.lookup(request.key) for request in sample.requests])
        self.ready.extend((pending, place) for place, response in enumerate(pending.responses) if response is None)
        if pending.missing == 0:
            self._finish(pending)

    def fill_in(self, pending: _Pending, place: int, response: Response) -> None:
        pending.responses[place] = response
        pending.missing -= 1
        if pending.missing == 0:
            self._finish(pending)

    def _finish(self, pending: _Pending) -> None:
        responses = [response for response in pending.responses if response is not None]
        preparation = self._prepare(pending.sample, responses)
        if preparation is None:
            self._batcher.add(pending.sample, responses)
        else:
            self._tasks.create_task(self._add_after(preparation, pending.sample, responses))

    async def _add_after(
        self, preparation: Coroutine[Any, Any, None], sample: Sample, responses: Sequence[Response]
    ) -> None:
        await preparation
        self._batcher.add(sample, responses)
