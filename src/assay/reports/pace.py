"""How fast samples are answered now, and so how long the rest will take."""

from __future__ import annotations

from array import array

_FEWEST = 8


class Pace:
    """Goes by the later half of the answered samples, so that the first answers of a cold server are soon forgotten.

    Samples that an earlier process had asked, or that failed, say nothing of the server's pace. Eight bytes a sample.
    """

    def __init__(self) -> None:
        self._times = array("d")

    def answered(self, now: float) -> None:
        """A sample that was asked has its answers."""
        self._times.append(now)

    def seconds_for(self, samples: int, at_once: int, now: float) -> float | None:
        """Seconds that so many more samples will take; None where it is too early to tell.

        Args:
            samples: that are left.
            at_once: how many are asked at the same time, and so may come in at the same time.
            now: the time.
        """
        known = len(self._times)
        counted = max(known // 2, at_once, _FEWEST)
        if known <= counted:
            return None
        return samples * (now - self._times[known - counted - 1]) / counted
