"""What a run's progress counts however it is shown, and its words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from assay._util.durations import duration_words
from assay._util.text import printable
from assay.progress import Progress
from assay.reports.pace import Pace
from assay.types import Answer, Response

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.types import Request, Sample


LONGEST_REMARK = 600
"""Characters shown of a remark."""


class CountingProgress(Progress):
    """What is counted however it is shown, and remarks said at once."""

    def __init__(self) -> None:
        self._begin()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def _begin(self) -> None:
        """Count from nought: a run begins."""
        self._asked = self._failed = self._limit = 0
        self._started = time.monotonic()
        self._pace = Pace()
        self._asked_now: set[tuple[str, int]] = set()
        """Samples that were asked in this process and are not complete."""

    def noted(self, remark: str) -> None:
        """Say it."""
        self._say(printable(remark, LONGEST_REMARK))

    def limited(self, limit: int) -> None:
        """Keep it, to be shown beside the rate."""
        self._limit = limit

    def responded(self, request: Request, response: Response) -> None:
        """Count requests and failures."""
        self._asked += 1
        self._failed += not isinstance(response, Answer)
        self._asked_now.add((request.task, request.doc_id))

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Learn how fast samples are answered."""
        place = (sample.task, sample.doc_id)
        if place in self._asked_now:
            self._asked_now.discard(place)
            if all(isinstance(response, Answer) for response in responses):
                self._pace.answered(time.monotonic())

    def _left(self, samples: int) -> str | None:
        """How long the rest of the samples will take, in words."""
        seconds = self._pace.seconds_for(samples, self._limit, time.monotonic()) if samples else None
        return None if seconds is None else f"{duration_words(seconds)} left"

    def _say(self, line: str) -> None:
        raise NotImplementedError


def opening_line(expected: dict[str, int], kept: int, journal: Path) -> str:
    """What a run is about to do, in one line."""
    tasks = f"{len(expected)} tasks" if len(expected) != 1 else next(iter(expected))
    resumed = f", going on with {kept} answers kept in {journal}" if kept else ""
    return f"{tasks}: {sum(expected.values())} samples{resumed}"
