"""The calls by which a run reports its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from assay.stats.intervals import Interval
    from assay.types import Request, Response, Sample


class Standing(NamedTuple):
    """One task's score so far."""

    task: str
    metric: str | None
    """The key of its first metric; None while nothing is scored."""
    value: float | None
    """The metric on what is scored so far; None where it is no mean."""
    interval: Interval | None
    """95 % interval; None also in a run that may stop early, where it would not hold."""
    scored: int
    failed: int


class Snapshot(Protocol):
    """The state of a run in progress. Any thread may read it."""

    def standings(self, tasks: Sequence[str]) -> Sequence[Standing]:
        """The scores of these tasks so far, in this order."""

    def checks(self) -> Sequence[str]:
        """One line for each check: what it demands, and how it stands."""


class Progress:
    """Base class of progress displays. A run calls a method at each step; here they do nothing.

    A run enters it as a context manager before its first step, and leaves it after its last. One object may watch
    several runs, one after another.
    """

    def __enter__(self) -> Self:
        """A run begins."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The run has ended, by `error` if there is one."""

    def loaded(self, expected: dict[str, int], kept: int, journal: Path) -> None:
        """The tasks are ready.

        Args:
            expected: samples by task.
            kept: answers that an interrupted run of the same specification left.
            journal: where answers are kept.
        """

    def may_stop_early(self, at_most: int) -> None:
        """The run ends once its checks are decided, at the latest after `at_most` samples; before :meth:`loaded`."""

    def watching(self, snapshot: Snapshot) -> None:
        """`snapshot` gives the scores from now on."""

    def noted(self, remark: str) -> None:
        """A remark for the user, in one line."""

    def server_busy(self, running: int, waiting: int) -> None:
        """The server reports how many requests it is running, and how many are waiting."""

    def limited(self, limit: int) -> None:
        """At most `limit` requests may be outstanding from now on."""

    def responded(self, request: Request, response: Response) -> None:
        """A response has arrived and is durable."""

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:
        """A sample has all its responses and is scored."""
