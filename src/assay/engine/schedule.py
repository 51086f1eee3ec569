"""Whose sample leaves next: one of the task with the longest answers, so that no long one is left to the end.

Each task's samples are drawn in the task's own order, on which its few-shot examples may depend; only the turns between
tasks are free, and they change no result. Within a task document order already keeps together what begins with the same
examples. Between tasks it does too: a task is left for another only where that one's answers are clearly longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.models.concurrency import work_of
from assay.types import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.types import Response, Sample

_TRIED = 4
"""Samples of each task asked first, to learn how long its answers are."""
_TOLD = 2
"""Answers from which on a task's own mean counts, not what was expected of it."""
_TURN = 12
"""Samples drawn between two looks at which task is longest."""
_SCOUTS = 4
"""Samples of the task with the shortest answers that follow each such turn at first: while the engine finds out how
many requests the server can take, soon answers help it more than long ones."""
_SCOUTED = 512
"""Samples of which some are scouts."""
_CLEARLY_LONGER = 1.25


@dataclass(eq=False)
class Stream:
    """Samples that must leave in this order: one task's, or those of several tasks that depend on each other's order.

    Args:
        tasks: their names.
        samples: built as they are drawn.
        expected: tokens of an answer, as far as is known beforehand; only the order that it gives matters.
    """

    tasks: Sequence[str]
    samples: Iterator[Sample]
    expected: float
    _answers: int = 0
    _tokens: int = 0

    def learn(self, tokens: int) -> None:
        """An answer had so many tokens."""
        self._answers += 1
        self._tokens += tokens

    @property
    def length(self) -> float:
        """Tokens of an answer, on average."""
        return self._tokens / self._answers if self._answers >= _TOLD else self.expected


class LongestFirst:
    """Iterates over the samples of all streams; a few of each first, then by what their answers showed.

    Args:
        streams: of no task more than one.
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._by_task = {task: stream for stream in streams for task in stream.tasks}
        self._left = sorted(streams, key=lambda stream: -stream.expected)
        self._turns = self._take_turns()

    def __iter__(self) -> Iterator[Sample]:
        return self._turns

    def learn(self, sample: Sample, responses: Sequence[Response]) -> None:
        """A sample is complete."""
        stream = self._by_task[sample.task]
        for response in responses:
            if isinstance(response, Answer):
                stream.learn(work_of(response))

    def _take_turns(self) -> Iterator[Sample]:
        for stream in self._to_try():
            yield from self._draw(stream, _TRIED)
        current, drawn = None, 0
        while self._left:
            longest = max(self._left, key=lambda stream: stream.length)
            if current not in self._left or longest.length > _CLEARLY_LONGER * current.length:
                current = longest
            yield from self._draw(current, _TURN)
            drawn += _TURN
            if drawn < _SCOUTED and (others := [stream for stream in self._left if stream.expected > 1]):
                yield from self._draw(min(others, key=lambda stream: stream.length), _SCOUTS)

    def _to_try(self) -> list[Stream]:
        """Those whose length the order depends on, the quickest to tell first.

        Answers of a single token, as choices have, hold no surprise.
        """
        unsure = [stream for stream in self._left if stream.expected > 1]
        return sorted(unsure, key=lambda stream: stream.expected) if len(unsure) > 1 else []

    def _draw(self, stream: Stream, count: int) -> Iterator[Sample]:
        for _ in range(count):
            sample = next(stream.samples, None)
            if sample is None:
                self._left.remove(stream)
                return
            yield sample
