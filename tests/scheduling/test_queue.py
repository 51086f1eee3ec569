"""The queue: lazy, bounded, complete; whatever a model raises stops it cleanly."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from assay.client.concurrency import Concurrency
from assay.errors import ServerUnreachableError
from assay.progress import Progress
from assay.scheduling import BATCH_SIZE, ask_all
from assay.types import Answer, CompleteSample, Request, Response, Sample


def sample(number: int, requests: int = 1) -> Sample:
    asked = [
        Request("task", number, index, 0, "generate_until", b"{}", f"{number}/{index}") for index in range(requests)
    ]
    return Sample("task", number, {}, [], asked)


class Model:
    """Answers with the request's key after a pause; counts."""

    def __init__(self, pause: float = 0.001) -> None:
        self.pause = pause
        self.asked: list[str] = []
        self.outstanding = self.most = 0

    async def ask(self, request: Request) -> Response:
        self.asked.append(request.key)
        self.outstanding += 1
        self.most = max(self.most, self.outstanding)
        try:
            await asyncio.sleep(self.pause)
        finally:
            self.outstanding -= 1
        return Answer(text=request.key)


class Record:
    """Keeps answers in a dictionary."""

    def __init__(self, kept: dict[str, Response] | None = None) -> None:
        self.kept = dict(kept or {})

    def lookup(self, key: str) -> Response | None:
        return self.kept.get(key)

    def append(self, request: Request, response: Response) -> None:
        assert request.key not in self.kept, "asked twice"
        self.kept[request.key] = response


def ask(
    samples: Iterator[Sample], model: Any, record: Record, concurrency: int, batch_size: int = BATCH_SIZE
) -> dict[int, list[str | None]]:
    completed: dict[int, list[str | None]] = {}

    def complete(handed_on: Sequence[CompleteSample]) -> None:
        assert len(handed_on) <= batch_size
        for done, responses in handed_on:
            assert done.doc_id not in completed, "completed twice"
            assert all(request.key in record.kept for request in done.requests), "scored before it was durable"
            completed[done.doc_id] = [response.text for response in responses if isinstance(response, Answer)]

    limit = Concurrency(concurrency)
    asyncio.run(
        ask_all(samples, model, record, complete, concurrency=limit, observer=Progress(), batch_size=batch_size)
    )
    return completed


@pytest.mark.parametrize("concurrency", [1, 3, 64])
def test_every_sample_completes_with_its_responses_in_order(concurrency: int) -> None:
    model = Model()
    completed = ask(iter([sample(number, 1 + number % 4) for number in range(50)]), model, Record(), concurrency)
    assert completed == {n: [f"{n}/{index}" for index in range(1 + n % 4)] for n in range(50)}
    assert len(model.asked) == len(set(model.asked))
    assert model.most == min(concurrency, model.most)
    assert model.most >= min(concurrency, 30)


@pytest.mark.parametrize("batch_size", [1, 8])
def test_samples_are_drawn_only_when_a_worker_is_free(batch_size: int) -> None:
    drawn = 0
    ahead: list[int] = []

    class Counting(Model):
        async def ask(self, request: Request) -> Response:
            ahead.append(drawn - len(self.asked) - 1)
            return await super().ask(request)

    def draw() -> Iterator[Sample]:
        nonlocal drawn
        for number in range(100):
            drawn += 1
            yield sample(number)

    ask(draw(), Counting(), Record(), 4, batch_size)
    assert drawn == len(ahead) == 100
    assert ahead[0] == 0, "the first request waited for the samples after it"
    assert max(ahead) == batch_size - 1


def test_complete_samples_are_handed_on_together_and_none_waits_for_long() -> None:
    model, sizes = Model(pause=0), Counter[int]()

    class Round(Progress):
        def responded(self, request: Request, response: Response) -> None:
            sizes[0] += 1

        def completed(self, sample: Sample, responses: Sequence[Response]) -> None:
            sizes[sizes[0]] += 1

    asyncio.run(
        ask_all(
            (sample(number) for number in range(70)),
            model,
            Record(),
            lambda *_: None,
            concurrency=Concurrency(16),
            observer=Round(),
            batch_size=8,
        )
    )
    del sizes[0]
    assert sum(sizes.values()) == 70
    assert max(sizes.values()) == 8


def test_kept_answers_are_not_asked_for() -> None:
    model = Model()
    kept: dict[str, Response] = {f"{n}/{index}": Answer(text="kept") for n in range(0, 20, 2) for index in (0, 1)}
    kept |= {"1/0": Answer(text="kept")}
    completed = ask(iter([sample(number, 2) for number in range(20)]), model, Record(kept), 5)
    assert completed[0] == ["kept", "kept"]
    assert completed[1] == ["kept", "1/1"]
    assert completed[3] == ["3/0", "3/1"]
    assert len(model.asked) == 19


def test_no_samples() -> None:
    assert ask(iter([]), Model(), Record(), 8) == {}


def test_an_exception_stops_everything_and_keeps_what_was_answered() -> None:
    class Dying(Model):
        async def ask(self, request: Request) -> Response:
            if len(self.asked) >= 10:
                raise ServerUnreachableError("gone")
            return await super().ask(request)

    model, record = Dying(), Record()
    with pytest.raises(ServerUnreachableError, match="gone"):
        ask(iter([sample(number) for number in range(1000)]), model, record, 4)
    assert model.outstanding == 0
    assert 6 <= len(record.kept) <= 10


def test_cancelling_leaves_no_request_behind() -> None:
    model, record = Model(pause=60), Record()

    async def cancelled() -> None:
        work = asyncio.create_task(
            ask_all(
                (sample(number) for number in range(100)),
                model,
                record,
                lambda *_: None,
                concurrency=Concurrency(8),
                observer=Progress(),
            )
        )
        while model.outstanding < 8:
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cancelled())
    assert model.outstanding == 0
    assert record.kept == {}


@pytest.mark.parametrize("pause", [0, 60])
def test_requests_under_way_are_given_up_when_it_is_over(pause: float) -> None:
    """And where every sample is answered before, nothing waits for that moment."""
    model, record = Model(pause=pause), Record()

    async def all_are_under_way_for_good() -> None:
        while model.outstanding < 8:
            await asyncio.sleep(0)
        if not pause:
            await asyncio.Event().wait()

    work = ask_all(
        (sample(number) for number in range(100)),
        model,
        record,
        lambda *_: None,
        concurrency=Concurrency(8),
        observer=Progress(),
        until=all_are_under_way_for_good,
    )
    asyncio.run(asyncio.wait_for(work, timeout=20))
    assert model.outstanding == 0
    assert len(record.kept) == (0 if pause else len(model.asked))


def test_a_scorer_that_raises_is_not_swallowed() -> None:
    def complete(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(
            ask_all(iter([sample(0)]), Model(), Record(), complete, concurrency=Concurrency(2), observer=Progress())
        )


@pytest.mark.parametrize("concurrency", [1, 7])
def test_nothing_is_asked_while_the_samples_say_to_wait(concurrency: int) -> None:
    """Each sample may leave only when the one before it is complete."""
    completed: list[int] = []

    def one_by_one() -> Iterator[Sample | None]:
        for number in range(5):
            while len(completed) < number:
                yield None
            yield sample(number, requests=3)

    model = Model()
    work = ask_all(
        one_by_one(),
        model,
        Record({"2/0": Answer(text="kept"), "2/1": Answer(text="kept"), "2/2": Answer(text="kept")}),
        lambda handed_on: completed.extend(done.doc_id for done, _ in handed_on),
        concurrency=Concurrency(concurrency),
        observer=Progress(),
    )
    asyncio.run(asyncio.wait_for(work, timeout=20))
    assert completed == [0, 1, 2, 3, 4]
    assert len(model.asked) == 12
    assert model.most == min(concurrency, 3)
