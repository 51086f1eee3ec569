"""A sequential change detector on non-negative values: when did their mean begin to exceed what it was?

While nothing has changed, the mean is at most m. For c > 1 and a stake s in [0, 1], e = 1 − s + s·min(x/m, c) then has
an expectation of at most 1 (see :mod:`assay.stats.divergences`), and M ← e·(M + 1), begun at 0, grows by at most 1 a
value on average: a Shiryaev–Roberts e-detector. So does the average of several. The mean number of values until it
reaches A is at least A if nothing ever changes, whatever the values' distribution, and it reaches A within n values
with probability at most n/A (Shin, Ramdas and Rinaldo, E-detectors: a nonparametric framework for sequential change
detection, 2022, arXiv 2203.03532).
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BETS = tuple(product((3.0, 10.0, 50.0, 1000.0), (0.02, 0.1, 0.4, 0.98)))
"""Where a value is cut, as a multiple of m, and the stake."""


class ChangeDetector:
    """Watches one stream of values.

    Args:
        at_most: the mean while nothing has changed, at most; greater than 0.
        run_length: the mean number of values until a false alarm, at least; greater than 1.
        state: ``state`` of a detector that saw the values before; empty: there are none.
    """

    def __init__(self, at_most: float, run_length: float, state: Sequence[float] = ()) -> None:
        if not at_most > 0 or not run_length > 1:
            raise ValueError(f"need at_most > 0 and run_length > 1, not {at_most} and {run_length}")
        if len(state) not in (0, len(_BETS)) or not all(0 <= each < float("inf") for each in state):
            raise ValueError(f"a state has {len(_BETS)} numbers, none below 0")
        self._at_most, self._run_length = at_most, run_length
        self._levels = list(state) or [0.0] * len(_BETS)

    def add(self, value: float) -> None:
        """Take the next value, at least 0."""
        ratio = value / self._at_most
        self._levels = [
            (1 - stake + stake * min(ratio, cut)) * (level + 1)
            for (cut, stake), level in zip(_BETS, self._levels, strict=True)
        ]

    @property
    def state(self) -> tuple[float, ...]:
        """What to go on with."""
        return tuple(self._levels)

    @property
    def evidence(self) -> float:
        """From 0; at 1 there is an alarm."""
        return sum(self._levels) / len(self._levels) / self._run_length

    @property
    def is_alarm(self) -> bool:
        """Whether the mean has changed."""
        return self.evidence >= 1
