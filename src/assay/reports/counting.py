"""Counts what every display of progress shows, and words it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from assay._util.durations import format_duration, format_rate
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


_ALIKE = 1.2
"""Two estimates of the time left are shown as one if their ratio is at most this."""
_COARSE = 600.0
"""Seconds; longer times are shown in whole minutes."""


class CountingProgress(Progress):
    """Counts requests, samples and failures for any display, and prints remarks at once."""

    def __init__(self) -> None:
        self._begin()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def _begin(self) -> None:
        """Reset the counts: a run begins."""
        self._asked = self._failed = self._limit = self._tokens = self._cut_off = 0
        self._busy = ""
        self._at_most: int | None = None
        """Samples, where the run may end before all are asked."""
        self._started = time.monotonic()
        self._pace = Pace()
        self._asked_now: set[tuple[str, int]] = set()
        """Samples that were asked in this process and are not complete."""

    def may_stop_early(self, at_most: int) -> None:
        """Keep it: the time left is unknown then."""
        self._at_most = at_most

    def noted(self, remark: str) -> None:
        """Print it."""
        self._say(printable(remark, LONGEST_REMARK))

    def server_busy(self, running: int, waiting: int) -> None:
        """Keep it, to be shown where anything waits."""
        self._busy = f"{running} running and {waiting} waiting at the server" if waiting else ""

    def limited(self, limit: int) -> None:
        """Keep it, to be shown beside the rate."""
        self._limit = limit

    def responded(self, request: Request, response: Response) -> None:
        """Count requests and failures."""
        self._asked += 1
        if isinstance(response, Answer):
            self._tokens += response.completion_tokens or 0 if request.scored is None else 0
            self._cut_off += response.finish_reason == "length" and request.scored is None
        else:
            self._failed += 1
        self._asked_now.add((request.task, request.doc_id))

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Learn how fast samples are answered."""
        place = (sample.task, sample.doc_id)
        if place in self._asked_now:
            self._asked_now.discard(place)
            if all(isinstance(response, Answer) for response in responses):
                self._pace.answered(time.monotonic())

    def _of_samples(self, expected: int) -> str:
        """How many samples there are to ask, in words."""
        return f"{expected} samples" if self._at_most is None else f"at most {self._at_most} samples"

    def _left(self, samples: int) -> str | None:
        """How long the rest of the samples will take, in words; None where that is not known."""
        if self._at_most is not None:
            return None
        known = self._pace.seconds_for(samples, self._limit, time.monotonic()) if samples else None
        if known is None:
            return None
        least, most = map(_rounded, known)
        if most <= least * _ALIKE:
            return f"{format_duration(most)} left"
        return f"{format_duration(least)} to {format_duration(most)} left"

    def _status_words(self, done: int, expected: int, seconds: float) -> list[str]:
        """How the run stands, in short pieces; failures are left to the display."""
        words = [f"{done} of {self._of_samples(expected)}"]
        if seconds > 0 and self._asked:
            words.append(format_rate(self._asked, seconds))
        if seconds > 0 and self._tokens:
            words.append(f"{self._tokens / seconds:.0f} tokens/s")
        if self._limit:
            words.append(f"{self._limit} at once")
        if self._busy:
            words.append(self._busy)
        if self._cut_off:
            words.append(f"{self._cut_off} cut off")
        if (left := self._left(expected - done)) is not None:
            words.append(left)
        return words

    def _say(self, line: str) -> None:
        raise NotImplementedError


def _rounded(seconds: float) -> float:
    return round(seconds / 60) * 60.0 if seconds > _COARSE else seconds


def opening_line(expected: dict[str, int], kept: int, journal: Path, at_most: int | None = None) -> str:
    """What a run is about to do, in one line; with ``at_most`` samples, if it may stop early."""
    tasks = f"{len(expected)} tasks" if len(expected) != 1 else next(iter(expected))
    resumed = f", going on with {kept} answers kept in {journal}" if kept else ""
    whole = sum(expected.values())
    if at_most is None:
        return f"{tasks}: {whole} samples{resumed}"
    of = f" of {whole}" if at_most < whole else ""
    return f"{tasks}: at most {at_most}{of} samples, fewer once all checks are decided{resumed}"
