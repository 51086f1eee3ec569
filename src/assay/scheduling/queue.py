"""The request queue: builds a sample when a worker is free, sends its requests, journals the responses, passes it on.

Nothing here knows what a task or a server is. Order, concurrency and interruptions change no result.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from assay.scheduling.completion_batcher import BATCH_SIZE, CompletionBatcher
from assay.scheduling.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from assay.client.concurrency import Concurrency, ServerLoad
    from assay.progress import Progress
    from assay.scheduling.completion_batcher import Complete
    from assay.types import Request, Response, Sample

    Prepare = Callable[[Sample, Sequence[Response]], Coroutine[Any, Any, None] | None]


class Model(Protocol):
    """Where answers come from."""

    async def ask(self, request: Request) -> Response:
        """Answer `request`; without an answer, return the failure."""


class Record(Protocol):
    """The durable record of answers."""

    def lookup(self, key: str) -> Response | None:
        """The recorded answer to this request, if there is one."""

    def append(self, request: Request, response: Response) -> None:
        """Record a response; it is durable when this returns."""


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
    until: Callable[[], Awaitable[None]] | None = None,
    batch_size: int = BATCH_SIZE,
) -> None:
    """Send every sample's requests to `model`, and pass samples to `complete` soon after their last response.

    Args:
        samples: samples in the order in which to send them; one is built only when a worker is free. None means: send
            nothing more until another sample is complete.
        model: answers requests. An exception from it stops everything; a request that fails is data.
        record: what it has an answer to is not asked again.
        complete: called with samples in the order of completion.
        concurrency: limits the number of outstanding requests; notified of each.
        observer: notified of every response and every complete sample.
        prepare: returns a coroutine to await between a sample's last response and `complete`, or None. Other samples
            go on meanwhile.
        load: asks the server for its load, see :meth:`WorkerPool.start`.
        until: when it returns, requests under way are given up, and nothing more is sent.
        batch_size: samples built at once, and passed on at once when complete. Batches halve the cost of a sample (see
            :mod:`assay.scheduling.completion_batcher`). 1 if what is asked next depends on complete samples.
    """
    now = asyncio.get_running_loop().time

    async def ask_next() -> bool:
        while not queue.ready:
            if not await queue.draw():
                return False
        pending, position = queue.ready.popleft()
        request = pending.sample.requests[position]
        sent = concurrency.sent(now())
        response = await model.ask(request)
        record.append(request, response)
        concurrency.ended(sent, request.task, response, now())
        observer.responded(request, response)
        queue.set_response(pending, position, response)
        return True

    try:
        async with asyncio.TaskGroup() as tasks:
            batcher = CompletionBatcher(complete, observer, tasks, batch_size)
            queue = _Queue(samples, record, batcher, prepare, tasks, batch_size)
            WorkerPool(ask_next, concurrency, observer, tasks).start(load, until)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


class _Pending:
    """A sample that still waits for some of its responses."""

    __slots__ = ("missing", "responses", "sample")

    def __init__(self, sample: Sample, kept: list[Response | None]) -> None:
        self.sample = sample
        self.responses = kept
        self.missing = kept.count(None)


class _Queue:
    """Requests that are still to be sent, drawn lazily from the samples. Shared by all workers."""

    def __init__(
        self,
        samples: Iterator[Sample | None],
        record: Record,
        batcher: CompletionBatcher,
        prepare: Prepare,
        tasks: asyncio.TaskGroup,
        batch_size: int,
    ) -> None:
        self._samples = samples
        self._record = record
        self._batcher = batcher
        self._prepare = prepare
        self._tasks = tasks
        self._batch_size = batch_size
        self._draw_count = 1
        """How many samples to draw next: one at first, so that the first requests leave at once."""
        self.ready: deque[tuple[_Pending, int]] = deque()
        """Requests to send next: a sample and the position of the request in it."""

    async def draw(self) -> bool:
        """Draw the next samples. If nothing may be sent yet, wait until a sample is complete.

        Other workers may take from `ready` during the wait, so look again.

        Returns:
            Whether there were any samples left.
        """
        sample, drawn = None, 0
        for sample in islice(self._samples, self._draw_count):
            drawn += 1
            if sample is None:
                break
            self._start(sample)
        if not drawn:
            return False
        self._draw_count = min(2 * self._draw_count, self._batch_size)
        if not self.ready:
            # All answers were recorded already, and the next samples' may be too: let other workers run.
            await (self._batcher.next() if sample is None else asyncio.sleep(0))
        return True

    def _start(self, sample: Sample) -> None:
        pending = _Pending(sample, [self._record.lookup(request.key) for request in sample.requests])
        self.ready.extend(
            (pending, position) for position, response in enumerate(pending.responses) if response is None
        )
        if pending.missing == 0:
            self._finish(pending)

    def set_response(self, pending: _Pending, position: int, response: Response) -> None:
        pending.responses[position] = response
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
