"""A server with continuous batching, and an event loop whose time jumps from one event to the next.

Code that waits for nothing but timers and futures runs on it unchanged, and minutes pass in milliseconds.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple, TypeVar

from assay.client.concurrency import ServerLoad

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will happen")
        self.now += max(0.0, timeout)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Never sleeps: where it would, it sets its clock forward instead."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was made, on its own clock."""
        return self._jumping.now


def run_simulated(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """The result of `work`, and how many seconds it would have taken."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        result = runner.run(work)
        return result, runner.get_loop().time()


class Costs(NamedTuple):
    """What the server's work takes, in seconds."""

    step: float
    """A decoding step, to which every running sequence adds one token."""
    sequence: float
    """What each running sequence adds to it."""
    prompt_token: float


class ServerSpec(NamedTuple):
    """How large a server is."""

    batch: int
    """Sequences that run at once, at most."""
    kv_tokens: int
    """Tokens of running sequences that there is memory for."""
    costs: Costs

    def full_step(self) -> float:
        """Seconds of a decoding step with a full batch."""
        return self.costs.step + self.costs.sequence * self.batch


@dataclass(eq=False)
class _Sequence:
    prompt: int
    left: int
    """Tokens still to be made."""
    done: asyncio.Future[None]
    ends: int = field(default=0)
    """The step after which it has them all."""


class SimulatedServer:
    """First come, first served; when memory runs out, the sequence admitted last starts over, as in vLLM."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.preemptions = 0
        self._waiting: deque[_Sequence] = deque()
        self._running: dict[_Sequence, None] = {}
        self._ends: list[tuple[int, int, _Sequence]] = []
        self._number = 0
        self._kv = 0
        self._steps = 0
        """Decoding steps before the present stretch."""
        self._since = 0.0
        """When the stretch began: steps with the same sequences."""
        self._stretch = 0
        self._timer: asyncio.TimerHandle | None = None

    async def generate(self, prompt: int, tokens: int) -> None:
        """Take as long as it takes to answer a prompt of so many tokens with so many."""
        loop = asyncio.get_running_loop()
        sequence = _Sequence(prompt, tokens, loop.create_future())
        self._waiting.append(sequence)
        if self._timer is None:
            self._timer = loop.call_soon(self._next_stretch)  # type: ignore[assignment]
        elif len(self._waiting) == 1 and self._fits(sequence):
            self._end_stretch_early()
        await sequence.done

    def load(self) -> ServerLoad:
        """What its gauges would show."""
        return ServerLoad(len(self._running), len(self._waiting))

    def _fits(self, sequence: _Sequence) -> bool:
        return len(self._running) < self.spec.batch and self._kv + sequence.prompt < self.spec.kv_tokens

    def _step(self) -> float:
        return self.spec.costs.step + self.spec.costs.sequence * len(self._running)

    def _end_stretch_early(self) -> None:
        """A newcomer joins after the step that is being computed."""
        loop = asyncio.get_running_loop()
        steps = max(1, ceil((loop.time() - self._since) / self._step() - 1e-9))
        if steps < self._stretch and self._timer is not None:
            self._timer.cancel()
            self._stretch = steps
            self._timer = loop.call_at(self._since + steps * self._step(), self._next_stretch)

    def _next_stretch(self) -> None:
        self._steps += self._stretch
        self._kv += self._stretch * len(self._running)
        self._finish()
        self._preempt()
        read = self._admit()
        if not self._running:
            self._timer, self._stretch = None, 0
            return
        until_end = self._first_end() - self._steps
        until_full = (self.spec.kv_tokens - self._kv) // len(self._running)
        self._stretch = max(1, min(until_end, until_full))
        loop = asyncio.get_running_loop()
        self._since = loop.time() + read * self.spec.costs.prompt_token
        self._timer = loop.call_at(self._since + self._stretch * self._step(), self._next_stretch)

    def _first_end(self) -> int:
        while self._ends[0][2] not in self._running or self._ends[0][2].ends != self._ends[0][0]:
            heapq.heappop(self._ends)
        return self._ends[0][0]

    def _finish(self) -> None:
        while self._running and self._first_end() <= self._steps:
            _, _, sequence = heapq.heappop(self._ends)
            del self._running[sequence]
            self._kv -= sequence.prompt + sequence.left
            if not sequence.done.done():
                sequence.done.set_result(None)

    def _preempt(self) -> None:
        while len(self._running) > 1 and self._kv + len(self._running) > self.spec.kv_tokens:
            sequence, _ = self._running.popitem()
            made = sequence.left - (sequence.ends - self._steps)
            self._kv -= sequence.prompt + made
            sequence.prompt += made
            sequence.left -= made
            self._waiting.appendleft(sequence)
            self.preemptions += 1

    def _admit(self) -> int:
        """Take in who fits; the number of prompt tokens to be read."""
        read = 0
        while self._waiting and self._fits(self._waiting[0]):
            sequence = self._waiting.popleft()
            sequence.ends = self._steps + sequence.left
            self._running[sequence] = None
            self._number += 1
            heapq.heappush(self._ends, (sequence.ends, self._number, sequence))
            self._kv += sequence.prompt
            read += sequence.prompt
        return read
