"""Whether a run that loses request after request had better end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import ServerRefusedError, ServerUnreachableError
from assay.models.retry import REFUSALS, Hope

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.models.concurrency import Concurrency
    from assay.models.retry import Fault

_REFUSALS_UNTIL_RAISE = 3


class Losses:
    """Counts requests that end without an answer since the last answer.

    Args:
        name: who does not answer, as the subject of a sentence.
        concurrency: bounds the requests outstanding at once.
        give_up_after: seconds without an answer after which so many losses end the run.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self, name: str, *, concurrency: Concurrency, give_up_after: float, clock: Callable[[], float]
    ) -> None:
        self._name = name
        self._concurrency = concurrency
        self._give_up_after = give_up_after
        self._clock = clock
        self._ever_answered = False
        self._failing_since: float | None = None
        self._lost = 0
        """Requests lost since the last answer."""
        self._refusals = 0

    def answered(self) -> None:
        """An answer came: all is well."""
        self._failing_since = None
        self._lost = 0
        self._ever_answered = True

    def failing_since(self) -> float:
        """When the present streak of failures began: now, if there was none."""
        if self._failing_since is None:
            self._failing_since = self._clock()
        return self._failing_since

    def lost(self, fault: Fault) -> None:
        """A request ends without an answer.

        Raises:
            ServerRefusedError: there has never been an answer, and request after request is refused.
            ServerUnreachableError: more requests than are ever outstanding were lost in a row, over ``give_up_after``
                seconds and more.
        """
        failing_for = self._clock() - self.failing_since()
        if fault.status in REFUSALS and not self._ever_answered:
            self._refusals += 1
            if self._refusals >= _REFUSALS_UNTIL_RAISE:
                raise ServerRefusedError(
                    f"{self._name} refuses every request ({fault.message}); check key, model name and URL"
                )
        if fault.hope is Hope.NONE:
            return
        self._lost += 1
        if self._lost > self._concurrency.bound and failing_for >= self._give_up_after:
            raise ServerUnreachableError(
                f"{self._name} has answered nothing for {failing_for:.0f} s (last: {fault.message}); "
                "see to the server, then run the same command again"
            )
