"""As many workers as the limit says, from moment to moment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import pytest

from assay.client.concurrency import Concurrency, ServerLoad
from assay.progress import Progress
from assay.scheduling.workers import WorkerPool
from benchmarks.simulated_server import run_simulated


class Steered(Concurrency):
    """Its limit is set by hand, or by the load."""

    is_searching = True

    def set(self, limit: int) -> None:
        self._limit = limit

    def loaded(self, load: ServerLoad, now: float) -> None:
        self.set(load.running)


class Told(Progress):
    def __init__(self) -> None:
        self.limits: list[int] = []

    def limited(self, limit: int) -> None:
        self.limits.append(limit)


class Work:
    """Pieces of a second each."""

    def __init__(self, pieces: int, concurrency: Steered, plan: dict[int, int] | None = None) -> None:
        self.left = pieces
        self.at_work = 0
        self.seen: dict[float, int] = {}
        self._concurrency = concurrency
        self._plan = plan or {}

    async def step(self) -> bool:
        if not self.left:
            return False
        self.left -= 1
        self.at_work += 1
        now = asyncio.get_running_loop().time
        self.seen[now()] = self.at_work
        await asyncio.sleep(1)
        self.at_work -= 1
        if (limit := self._plan.get(round(now()))) is not None:
            self._concurrency.set(limit)
        return True


def work(
    pieces: int, start: int, plan: dict[int, int] | None = None, load: Callable[[], ServerLoad | None] | None = None
) -> tuple[list[int], float, list[int]]:
    """Workers at the beginning of each second, the seconds it took, and the limits told."""
    concurrency, observer = Steered(start), Told()
    doing = Work(pieces, concurrency, plan)

    async def read() -> ServerLoad | None:
        assert load is not None
        return load()

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            WorkerPool(doing.step, concurrency, observer, tasks).start(None if load is None else read)

    _, seconds = run_simulated(run())
    assert (doing.left, doing.at_work) == (0, 0)
    return list(doing.seen.values()), seconds, observer.limits


def test_a_fixed_limit() -> None:
    assert work(12, 4) == ([4, 4, 4], 3, [4])


def test_workers_are_hired_and_leave_as_the_limit_changes() -> None:
    at_work, _, told = work(40, 4, {2: 12, 4: 3, 6: 1})
    assert at_work[:2] == [4, 4]
    assert at_work[2:4] == [12, 12]
    assert at_work[4:6] == [3, 3]
    assert set(at_work[6:]) == {1}
    assert told == [4, 12, 3, 1]


def test_the_load_steers_between_answers_and_is_not_watched_any_longer_than_there_is_work() -> None:
    limits = deque([2, 5, 5])
    at_work, seconds, told = work(10, 1, load=lambda: ServerLoad(limits.popleft() if limits else 5, 0))
    assert told == [1, 2, 5]
    assert max(at_work) == 5
    assert seconds == 3


def test_a_server_that_does_not_tell_is_asked_once_and_one_that_is_away_again() -> None:
    asked = []

    def silent() -> ServerLoad | None:
        asked.append("silent")
        return None

    def away() -> ServerLoad | None:
        asked.append("away")
        raise ConnectionRefusedError

    work(10, 1, load=silent)
    work(10, 1, load=away)
    assert asked.count("silent") == 1
    assert asked.count("away") >= 9


def test_what_a_step_raises_stops_the_others() -> None:
    stopped: list[str] = []

    async def step() -> bool:
        try:
            await asyncio.sleep(1 if not stopped else 60)
            stopped.append("first")
            raise ValueError("broken")
        except asyncio.CancelledError:
            stopped.append("cancelled")
            raise

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            WorkerPool(step, Concurrency(3), Progress(), tasks).start()

    with pytest.raises(ExceptionGroup) as raised:
        run_simulated(run())
    assert raised.group_contains(ValueError, match="broken")
    assert stopped[0] == "first"
