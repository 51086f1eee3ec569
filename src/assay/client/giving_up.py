"""Decides when to end a run whose servers answer nothing.

One clock covers all causes (no connection, overload, errors): it starts with the first attempt that fails after an
answer, and only an answer stops it. Refusals that a retry cannot change are counted instead. Before either ends the
run, the server gets a short question with the same settings, since the run's own requests may be at fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from assay._util.durations import format_duration
from assay.client.refusals import how_refused
from assay.client.retry import REFUSALS, Fault, Retryability
from assay.errors import ServerRefusedError, ServerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from assay.client.endpoint import Endpoint

T = TypeVar("T")

_REFUSALS_AT_FIRST = 3
"""Requests in a row refused for the key, the model or the address, before any answer, that trigger a check."""
_REFUSALS_LATER = 30
"""Requests in a row refused for any reason that trigger a check."""
_CHECK_SECONDS = 10.0
_REPORT_AFTER = 3.0
"""Seconds; shorter outages are not reported."""
_REPORT_AGAIN_AFTER = 30.0
_REPORT_AT_LEAST_EVERY = 600.0
_CHECK_SOON_EVERY = 0.25
_CHECK_EVERY = 5.0
"""Seconds between checks for requests still in progress, once the time is up."""
_SHORTEST_PAUSE = 0.01

_KEPT = "the answers so far are kept"


class LostAttempt(msgspec.Struct, frozen=True):
    """An attempt without an answer."""

    endpoint: Endpoint
    fault: Fault
    seconds: float
    """How long it took."""
    server_is_down: bool
    ask_shortly: Callable[[], Awaitable[object]]
    """Asks that server a short question with the request's settings; returns a :class:`Fault` if it fails."""
    ask_plainly: Callable[[], Awaitable[object]]
    """The same, but accepts any answer, even one without the log-probabilities that the request asks for."""


class _End(msgspec.Struct, frozen=True):
    """Why the run ends."""

    kind: type[ServerUnreachableError | ServerRefusedError]
    message: str


class Patience:
    """Shared by all requests of a run; every attempt is made through :meth:`attempt`.

    Args:
        addresses: the servers' addresses.
        limit: seconds without an answer after which the run ends.
        clock: a monotonic clock in seconds.
        sleep: waits for so many seconds of that clock.
        tell: called with a line while nothing is answered, and when there is an answer again.
        advice: what to do about a refusal, as a clause.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        limit: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        tell: Callable[[str], None],
        advice: Callable[[Fault], str],
    ) -> None:
        several = len(addresses) > 1
        self._servers = len(addresses)
        self._where = f"any of {', '.join(addresses)}" if several else addresses[0]
        self._all_servers = f"each of {len(addresses)} endpoints" if several else addresses[0]
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._tell = tell
        self._advice = advice

        self._requests = 0
        self._under_way: dict[asyncio.Task[object], float] = {}
        """Start times of the attempts in progress, by the asyncio task that makes each."""
        self._failing_since: float | None = None
        self._last: LostAttempt | None = None
        self._longest_failure = 0.0
        """Seconds of the longest failed attempt since the last answer."""
        self._watching: asyncio.Task[None] | None = None
        self._is_reported = False
        self._long_waits: dict[Endpoint, Fault] = {}
        """The last faults of servers that ask to wait for longer than the limit."""
        self._refusing: set[Endpoint] = set()
        """Servers whose last reply refused every request."""
        self._ever_answered = False
        self._refused = 0
        """Requests refused for good since the last answer."""
        self._refusals_allowed = _REFUSALS_LATER
        self._is_checking = False
        self._waiting: dict[asyncio.Task[object], float] = {}
        """When each task that is between two attempts began to wait."""
        self._interrupted: set[asyncio.Task[object]] = set()
        self._end: _End | None = None

    def begin(self) -> None:
        """A request begins. The first request after a run's end starts a new run."""
        if self._end is not None and not self._requests:
            self._end = None
            self._stop_clock()
        self._requests += 1

    def end(self) -> None:
        """A request ends, after its last attempt."""
        self._requests -= 1

    def attempt(self, work: Awaitable[T]) -> Awaitable[T]:
        """Run one attempt and return its result.

        Raises:
            ServerUnreachableError, ServerRefusedError: the run has ended meanwhile.
        """
        return self._run_until_end(work, self._under_way)

    def answered(self, endpoint: Endpoint) -> None:
        """An answer came: stop the clock."""
        if self._is_reported and self._failing_since is not None:
            self._tell(
                f"{self._all_servers} answers again after {format_duration(self._clock() - self._failing_since)}"
            )
        self._stop_clock()
        self._long_waits.pop(endpoint, None)
        self._refusing.discard(endpoint)
        self._ever_answered = True
        self._refused = 0
        self._refusals_allowed = _REFUSALS_LATER

    def failed(self, attempt: LostAttempt) -> None:
        """An attempt failed.

        Raises:
            ServerUnreachableError: nothing was answered for too long, or will be for longer than the limit.
            ServerRefusedError: the run has ended because every request is refused.
        """
        self._raise_if_over()
        fault = attempt.fault
        if fault.retryability is Retryability.NO:
            if fault.status in REFUSALS:
                self._refusing.add(attempt.endpoint)
            return
        self._last = attempt
        self._start_clock()
        self._longest_failure = max(self._longest_failure, attempt.seconds)
        if fault.retry_after is None or fault.retry_after <= self._limit:
            self._long_waits.pop(attempt.endpoint, None)
            return
        self._long_waits[attempt.endpoint] = fault
        if len(self._refusing | self._long_waits.keys()) == self._servers and not self._under_way:
            self._finish(ServerUnreachableError, self._asked_to_wait(attempt.endpoint, fault.retry_after))
            self._raise_if_over()

    def has_answered_nothing_since(self, when: float) -> bool:
        """Whether no attempt has succeeded since then. During such an outage failures do not use up attempts."""
        return self._failing_since is not None and self._failing_since <= when

    async def refused(self, attempt: LostAttempt) -> None:
        """A request ends because a retry cannot help.

        Raises:
            ServerRefusedError: many requests in a row ended so, and a short question is refused too.
        """
        if attempt.fault.status is None:
            return
        self._refused += 1
        is_about_server = attempt.fault.status in REFUSALS and not self._ever_answered
        allowed = min(self._refusals_allowed, _REFUSALS_AT_FIRST) if is_about_server else self._refusals_allowed
        if self._refused < allowed:
            return
        if self._is_checking:
            await self._wait_for_check()
            return
        self._is_checking = True
        try:
            await self._end_if_everything_is_refused(attempt)
        finally:
            self._is_checking = False
        self._raise_if_over()

    async def _end_if_everything_is_refused(self, attempt: LostAttempt) -> None:
        result = await _result(attempt.ask_shortly)
        if not isinstance(result, Fault) or result.retryability is not Retryability.NO:
            # The requests are at fault, or the check has failed: wait longer before the next check.
            self._refused, self._refusals_allowed = 0, 2 * self._refusals_allowed
            self._ever_answered = True
            return
        refusal = f"{self._all_servers} {how_refused(result)} ({result.message})"
        await self._wait_for_requests_under_way(refusal)
        if self._refused:
            self._finish(
                ServerRefusedError,
                f"{refusal}; {self._advice(result)}; {_KEPT}, and the same command goes on with them",
            )

    async def _wait_for_check(self) -> None:
        while self._is_checking:
            await self.wait(_CHECK_SOON_EVERY)

    async def _wait_for_requests_under_way(self, refusal: str) -> None:
        """Wait for requests in progress: one answer would show that the server does not refuse everything."""
        since, is_reported = self._clock(), False
        while self._under_way and self._refused:
            await self._sleep(_CHECK_SOON_EVERY)
            if self._under_way and not is_reported and self._clock() - since >= _REPORT_AFTER:
                is_reported = True
                self._tell(f"{refusal}: the run ends unless one of the {len(self._under_way)} under way is answered")

    async def wait(self, seconds: float) -> None:
        """Wait before the next attempt.

        Raises:
            ServerUnreachableError, ServerRefusedError: the run has ended meanwhile.
        """
        await self._run_until_end(self._sleep(seconds), self._waiting)

    async def wait_for_server(self, back: Awaitable[None]) -> None:
        """Wait until a server is available.

        Raises:
            ServerUnreachableError, ServerRefusedError: the run has ended meanwhile.
        """
        self._start_clock()
        await self._run_until_end(back, self._waiting)

    async def close(self) -> None:
        """Cancel background tasks."""
        watching = self._watching
        self._stop_clock()
        if watching is not None:
            with suppress(asyncio.CancelledError):
                await watching

    def _start_clock(self) -> None:
        if self._failing_since is None:
            self._failing_since = self._clock()
            self._watching = asyncio.create_task(self._watch(self._failing_since))

    def _stop_clock(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._failing_since = self._watching = self._last = None
        self._longest_failure = 0.0
        self._is_reported = False

    async def _watch(self, since: float) -> None:
        """Report how long nothing has been answered, and end the run when the time is up."""
        pause = _REPORT_AFTER
        report_at = since + pause
        while True:
            now = self._clock()
            is_up = now >= since + self._limit
            if is_up and not self._may_still_be_answered():
                await self._end_unless_answered(now - since)
                return
            if now >= report_at:
                self._is_reported = True
                self._tell(self._progress_line(now - since))
                pause = min(max(2 * pause, _REPORT_AGAIN_AFTER), _REPORT_AT_LEAST_EVERY)
                report_at = now + pause
            next_check = _CHECK_EVERY if is_up else since + self._limit - now
            await self._sleep(max(min(report_at - now, next_check), _SHORTEST_PAUSE))

    async def _end_unless_answered(self, seconds: float) -> None:
        last = self._last
        if last is not None and not last.server_is_down and _is_answer(await _result(last.ask_plainly)):
            self._watching = None
            self.answered(last.endpoint)
            return
        self._finish(ServerUnreachableError, self._answered_nothing(seconds))

    def _may_still_be_answered(self) -> bool:
        """Whether a request has run for longer than any took to fail, so that an answer is probably coming."""
        now = self._clock()
        return any(now - began > self._longest_failure for began in self._under_way.values())

    def _finish(self, kind: type[ServerUnreachableError | ServerRefusedError], message: str) -> None:
        self._end = _End(kind, message)
        for task in self._waiting.keys() | self._under_way.keys():
            self._interrupted.add(task)
            task.cancel()

    def _raise_if_over(self) -> None:
        if self._end is not None:
            raise self._end.kind(self._end.message)

    def _refuse(self, work: Awaitable[object]) -> None:
        if isinstance(work, Coroutine):
            work.close()  # else Python warns that it was never awaited
        self._raise_if_over()

    async def _run_until_end(self, work: Awaitable[T], noted: dict[asyncio.Task[object], float]) -> T:
        """Await `work`, listed in `noted` meanwhile; the run's end cancels it."""
        if self._end is not None:
            self._refuse(work)
        # Every request passes here, so it stays cheap: no timer and no further coroutine.
        task = _this_task()
        cancelled_before = task.cancelling()
        noted[task] = self._clock()
        try:
            return await work
        except asyncio.CancelledError:
            self._raise_if_interrupted(task, cancelled_before)
            raise
        finally:
            noted.pop(task, None)

    def _raise_if_interrupted(self, task: asyncio.Task[object], cancelled_before: int) -> None:
        """Raise the error that ends the run, unless something else has cancelled the task too."""
        if task not in self._interrupted:
            return
        self._interrupted.discard(task)
        if task.uncancel() <= cancelled_before:
            self._raise_if_over()

    def _progress_line(self, seconds: float) -> str:
        left = self._limit - seconds
        if left > 0:
            when = f"in {format_duration(left)} unless there is an answer"
        else:
            when = f"unless one of the {len(self._under_way)} requests under way is answered"
        return f"{self._subject()} for {format_duration(seconds)}{self._last_fault()}: the run ends {when}"

    def _answered_nothing(self, seconds: float) -> str:
        return (
            f"{self._subject()} for {format_duration(seconds)}{self._last_fault()}; {_KEPT}: {self._what_to_do()}, "
            "then run the same command again"
        )

    def _what_to_do(self) -> str:
        if self._last is not None and self._last.fault.is_at_proxy:
            return "start the proxy"
        return f"{'start' if self._is_down else 'see to'} the server{'s' if self._servers > 1 else ''}"

    def _asked_to_wait(self, endpoint: Endpoint, seconds: float) -> str:
        all_do = len(self._long_waits) == self._servers
        return (
            f"{self._all_servers if all_do else endpoint.address} asks to wait {format_duration(seconds)} "
            f"({self._long_waits[endpoint].message}), longer than --give-up-after ({self._limit:g} s)"
            f"{'' if all_do else ', and the other endpoints refuse every request'}; {_KEPT}: run the same command "
            "again after that"
        )

    @property
    def _is_down(self) -> bool:
        return self._last is None or self._last.server_is_down

    def _subject(self) -> str:
        return (
            f"nothing has answered at {self._where}" if self._is_down else f"{self._all_servers} has answered nothing"
        )

    def _last_fault(self) -> str:
        return "" if self._last is None else f" (last: {self._last.fault.message})"


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("requests are made in asyncio tasks")
    return task


async def _result(ask: Callable[[], Awaitable[object]]) -> object:
    """The result of a short question; None after a time-out."""
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            return await ask()
    except TimeoutError:
        return None


def _is_answer(result: object) -> bool:
    return result is not None and not isinstance(result, Fault)
