"""What a run's progress counts however it is shown, and its words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from assay._util.text import printable
from assay.progress import Progress
from assay.types import Answer, Response

if TYPE_CHECKING:
    from pathlib import Path


LONGEST_REMARK = 600
"""Characters shown of a remark."""


class CountingProgress(Progress):
    """What is counted however it is shown, and remarks said at once."""

    def __init__(self) -> None:
        self._asked = self._failed = self._limit = 0
        self._started = time.monotonic()

    def noted(self, remark: str) -> None:
        """Say it."""
        self._say(printable(remark, LONGEST_REMARK))

    def limited(self, limit: int) -> None:
        """Keep it, to be shown beside the rate."""
        self._limit = limit

    def responded(self, request: Any, response: Response) -> None:  # noqa: ARG002
        """Count requests and failures."""
        self._asked += 1
        self._failed += not isinstance(response, Answer)

    def _say(self, line: str) -> None:
        raise NotImplementedError


def opening_line(expected: dict[str, int], kept: int, journal: Path) -> str:
    """What a run is about to do, in one line."""
    tasks = f"{len(expected)} tasks" if len(expected) != 1 else next(iter(expected))
    resumed = f", going on with {kept} answers kept in {journal}" if kept else ""
    return f"{tasks}: {sum(expected.values())} samples{resumed}"
