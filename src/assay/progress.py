"""What a run tells whoever watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.tasks.requests import Sample
    from assay.types import Request, Response


class Progress:
    """Told of every step; does nothing unless a subclass does."""

    def loaded(self, expected: dict[str, int], kept: int, journal: Path) -> None:
        """The tasks are ready.

        Args:
            expected: samples by task.
            kept: answers that an interrupted run of the same specification left.
            journal: where answers are kept.
        """

    def noted(self, remark: str) -> None:
        """Something that whoever watches should know, in one line."""

    def limited(self, limit: int) -> None:
        """From now on so many requests may be outstanding at once."""

    def responded(self, request: Request, response: Response) -> None:
        """A response has arrived and is durable."""

    def completed(self, sample: Sample, responses: Sequence[Response]) -> None:
        """A sample has all its responses and is scored."""
