"""What a pool knows of one of its endpoints."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.models.endpoint import Endpoint
    from assay.models.retry import Fault

_ANSWERS_REMEMBERED = 32
# Seconds in which what was learnt of an endpoint that is not asked loses half its weight: a slow start must not bar it.
_HALF_LIFE = 30.0


@dataclass(eq=False)
class Member:
    """An endpoint: how busy, how fast and how well it is."""

    endpoint: Endpoint
    pause: float
    """Seconds before the next look, while it is set aside."""
    outstanding: int = 0
    """Attempts under way."""
    requests: int = 0
    """Attempts begun."""
    seconds: float | None = None
    """What an answer takes, smoothed; None before the first."""
    faults: Counter[str] = field(default_factory=Counter)
    """Failed attempts by cause."""
    failures_in_a_row: int = 0
    aside: Fault | None = None
    """Why it is set aside, while it is."""
    is_down: bool = False
    """While it is set aside: it is not there at all, rather than there and failing."""
    times_aside: int = 0
    _answers: int = 0
    _learnt: float = 0.0

    def learn(self, seconds: float, now: float) -> None:
        """An answer took so many seconds."""
        self._answers += 1
        before = seconds if self.seconds is None else self.seconds
        self.seconds = before + (seconds - before) / min(self._answers, _ANSWERS_REMEMBERED)
        self._learnt = now

    def expected_wait(self, typical: float, now: float) -> float:
        """Seconds until one more request would be done, were they done one after another.

        Args:
            typical: what an answer takes elsewhere, in seconds.
            now: the time.
        """
        seconds = typical if self.seconds is None else self.seconds
        if not self.outstanding:
            seconds = typical + (seconds - typical) * 0.5 ** ((now - self._learnt) / _HALF_LIFE)
        return (self.outstanding + 1) * seconds
