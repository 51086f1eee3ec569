"""Decides which task's sample comes next: the one with the longest answers, so that no long one is left to the end.

Each task's samples keep the task's own order, on which its few-shot examples may depend. Switching between tasks
changes no result. Samples of one task share a prefix, which servers cache, so the schedule switches only to a task
whose answers are clearly longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.client.concurrency import work_of
from assay.types import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.types import Response, Sample

_FIRST_SAMPLES = 4
"""Samples of each task to start with, to learn how long its answers are."""
_ENOUGH_ANSWERS = 2
"""Answers after which a task's own mean replaces the expected length."""
_TURN_LENGTH = 12
"""Samples drawn before comparing the tasks' lengths again."""
_SCOUTS = 4
"""Samples of the task with the shortest answers that follow each turn at first: short answers show sooner how many
requests the server can take."""
_SCOUT_UNTIL = 512
"""Samples after which there are no more scouts."""
_CLEARLY_LONGER = 1.25


@dataclass(eq=False)
class Stream:
    """Samples that must be sent in this order: of one task, or of several tasks that depend on each other's order.

    Args:
        tasks: the tasks' names.
        samples: the samples, built as they are drawn.
        expected: tokens of an answer, as far as known beforehand. It is only compared with other streams'.
    """

    tasks: Sequence[str]
    samples: Iterator[Sample]
    expected: float
    _answers: int = 0
    _tokens: int = 0

    def learn(self, tokens: int) -> None:
        """Record the length of an answer."""
        self._answers += 1
        self._tokens += tokens

    @property
    def length(self) -> float:
        """Mean tokens of an answer."""
        return self._tokens / self._answers if self._answers >= _ENOUGH_ANSWERS else self.expected


class LongestFirst:
    """Iterates over the samples of all streams: a few of each first, then those with the longest answers.

    Args:
        streams: at most one for each task.
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._by_task = {task: stream for stream in streams for task in stream.tasks}
        self._left = sorted(streams, key=lambda stream: -stream.expected)
        self._turns = self._take_turns()

    def __iter__(self) -> Iterator[Sample]:
        return self._turns

    def learn(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Record the lengths of a complete sample's answers."""
        stream = self._by_task[sample.task]
        for response in responses:
            if isinstance(response, Answer):
                stream.learn(work_of(response))

    def _take_turns(self) -> Iterator[Sample]:
        for stream in self._uncertain_streams():
            yield from self._draw(stream, _FIRST_SAMPLES)
        current, drawn = None, 0
        while self._left:
            longest = max(self._left, key=lambda stream: stream.length)
            if current not in self._left or longest.length > _CLEARLY_LONGER * current.length:
                current = longest
            yield from self._draw(current, _TURN_LENGTH)
            drawn += _TURN_LENGTH
            if drawn < _SCOUT_UNTIL and (others := [stream for stream in self._left if stream.expected > 1]):
                yield from self._draw(min(others, key=lambda stream: stream.length), _SCOUTS)

    def _uncertain_streams(self) -> list[Stream]:
        """Streams whose answers' length is uncertain, shortest first.

        Answers to multiple-choice questions are a single token.
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
