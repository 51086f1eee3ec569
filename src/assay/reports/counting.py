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
        self._at_most: int | None = None
        """Samples, where the run may end before all are asked."""
        self._started = time.monotonic()
        self._pace = Pace()
        self._asked_now: set[tuple[str, int]] = set()
        """Samples that were asked in this process and are not complete."""

    def may_stop_early(self, at_most: int) -> None:
        """Keep it: what is left cannot be told then."""
        self._at_most = at_most

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

    def _of_samples(self, expected: int) -> str:
        """How many samples there are to be asked, in words."""
        return f"{expected} samples" if self._at_most is None else f"at most {self._at_most} samples"

    def _left(self, samples: int) -> str | None:
        """How long the rest of the samples will take, in words; None where that is not known."""
        if self._at_most is not None:
            return None
        seconds = self._pace.seconds_for(samples, self._limit, time.monotonic()) if samples else None
        return None if seconds is None else f"{duration_words(seconds)} left"

    def _say(self, line: str) -> None:
        raise NotImplementedError


def opening_line(expected: dict[str, int], kept: int, journal: Path, at_most: int | None = None) -> str:
    """What a run is about to do, in one line; ``at_most`` so many samples, where it may stop early."""
    tasks = f"{len(expected)} tasks" if len(expected) != 1 else next(iter(expected))
    resumed = f", going on with {kept} answers kept in {journal}" if kept else ""
    whole = sum(expected.values())
    if at_most is None:
        return f"{tasks}: {whole} samples{resumed}"
    of = f" of {whole}" if at_most < whole else ""
    return f"{tasks}: at most {at_most}{of} samples, fewer once all checks are decided{resumed}"
