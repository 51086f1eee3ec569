"""What a run tells whoever watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from assay.stats.intervals import Interval
    from assay.types import Request, Response, Sample


class Standing(NamedTuple):
    """How one task stands."""

    task: str
    metric: str | None
    """The key of its first metric; None while nothing is scored."""
    value: float | None
    """The metric on what is scored so far; None where it is no mean."""
    interval: Interval | None
    """95 % interval; None also where the run decides by itself when to stop, for which it would not hold."""
    scored: int
    failed: int


class Snapshot(Protocol):
    """A run that is going on, to be looked at from any thread."""

    def standings(self, tasks: Sequence[str]) -> Sequence[Standing]:
        """How some of the run's tasks stand, in the order in which they are named."""

    def checks(self) -> Sequence[str]:
        """Every check, in one line each: what is demanded, and how it stands."""


class Progress:
    """Told of every step; does nothing unless a subclass does.

    Each run enters it as a context manager before its first step, and leaves it when it has ended. One object may
    watch several runs, one after another.
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
        """The run ends when its checks are decided, at the latest after so many samples; told before :meth:`loaded`."""

    def watching(self, snapshot: Snapshot) -> None:
        """From now on `snapshot` tells how the scores stand."""

    def noted(self, remark: str) -> None:
        """Something that whoever watches should know, in one line."""

    def server_busy(self, running: int, waiting: int) -> None:
        """The server says how many requests it works on, and how many wait at it."""

    def limited(self, limit: int) -> None:
        """From now on so many requests may be outstanding at once."""

    def responded(self, request: Request, response: Response) -> None:
        """A response has arrived and is durable."""

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:
        """A sample has all its responses and is scored."""
