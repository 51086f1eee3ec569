"""Estimates how long the remaining samples will take, from how fast the latest were answered."""

from __future__ import annotations

from array import array

_FEWEST = 8
_SHARES = (2, 4, 8)
"""The latest half, quarter and eighth of the answers: each gives an estimate."""


class Pace:
    """Estimates by the latest half, quarter and eighth of the answered samples.

    So the first answers of a cold server are soon forgotten, and a pace that changes shows as a range.

    Samples that an earlier process asked, or that failed, do not count. It takes eight bytes a sample.
    """

    def __init__(self) -> None:
        self._times = array("d")

    def answered(self, now: float) -> None:
        """Record that a sample has its answers."""
        self._times.append(now)

    def seconds_for(self, samples: int, at_once: int, now: float) -> tuple[float, float] | None:
        """The least and the most seconds that so many more samples will take; None where it is too early to tell.

        Args:
            samples: how many are left.
            at_once: how many are asked at the same time, and so may come in at the same time.
            now: the time.
        """
        known = len(self._times)
        windows = {max(known // share, at_once, _FEWEST) for share in _SHARES}
        found = [seconds for window in windows if (seconds := self._seconds_by(window, samples, now)) is not None]
        return (min(found), max(found)) if found else None

    def _seconds_by(self, counted: int, samples: int, now: float) -> float | None:
        known = len(self._times)
        return None if known <= counted else samples * (now - self._times[known - counted - 1]) / counted
