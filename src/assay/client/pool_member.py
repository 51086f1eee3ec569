"""The state of one endpoint of a pool."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.client.endpoint import Endpoint
    from assay.client.retry import Fault

_ANSWERS_REMEMBERED = 32
# Seconds in which the measured speed of an idle endpoint loses half its weight: a slow start must not exclude it.
_HALF_LIFE = 30.0


@dataclass(eq=False)
class Member:
    """An endpoint: how busy, how fast and how well it is."""

    endpoint: Endpoint
    pause: float
    """Seconds before the next health check, while it is set aside."""
    outstanding: int = 0
    """Attempts under way."""
    requests: int = 0
    """Attempts begun."""
    seconds: float | None = None
    """Smoothed seconds of an answer; None before the first."""
    faults: Counter[str] = field(default_factory=Counter)
    """Failed attempts by cause."""
    failures_in_a_row: int = 0
    aside: Fault | None = None
    """Why it is set aside; None if it is in use."""
    is_down: bool = False
    """Whether it is set aside because it does not respond at all, rather than because requests fail."""
    times_aside: int = 0
    _answers: int = 0
    _learnt: float = 0.0

    def learn(self, seconds: float, now: float) -> None:
        """Record the seconds of an answer."""
        self._answers += 1
        before = seconds if self.seconds is None else self.seconds
        self.seconds = before + (seconds - before) / min(self._answers, _ANSWERS_REMEMBERED)
        self._learnt = now

    def expected_wait(self, typical: float, now: float) -> float:
        """Seconds until one more request would be answered, if the endpoint answered one at a time.

        Args:
            typical: mean seconds of an answer over all endpoints.
            now: the time.
        """
        seconds = typical if self.seconds is None else self.seconds
        if not self.outstanding:
            seconds = typical + (seconds - typical) * 0.5 ** ((now - self._learnt) / _HALF_LIFE)
        return (self.outstanding + 1) * seconds
