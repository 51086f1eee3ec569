"""How long a run puts up with servers that answer nothing, and when it had better end.

One clock for everything that keeps answers away, be it no connection, overload or errors: it starts with the first
attempt that fails after an answer, and only an answer stops it. Refusals that asking again cannot change are counted
instead. Neither ends a run on the word of its own requests alone, which may be at fault themselves: before that, the
server gets a short question with the same settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from assay._util.durations import format_duration
from assay.errors import ServerRefusedError, ServerUnreachableError
from assay.models.refusals import how_refused
from assay.models.retry import REFUSALS, Fault, Retryability

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from assay.models.endpoint import Endpoint

T = TypeVar("T")

_REFUSALS_AT_FIRST = 3
"""Requests refused for the key, the model or the address, before there was any answer, that raise the question."""
_REFUSALS_LATER = 30
"""Requests refused for whatever reason, one after another, that raise it."""
_TRIAL_SECONDS = 10.0
_TOLD_AFTER = 3.0
"""Seconds; whoever watches is not bothered with shorter outages."""
_TOLD_AGAIN_AFTER = 30.0
_TOLD_AT_LEAST_EVERY = 600.0
_LOOK_SOON_EVERY = 0.25
_LOOK_EVERY = 5.0
"""Seconds between looks at whether an answer is still in the making, when time is up."""
_SHORTEST_PAUSE = 0.01

_KEPT = "the answers so far are kept"


class LostAttempt(msgspec.Struct, frozen=True):
    """An attempt that brought no answer."""

    endpoint: Endpoint
    fault: Fault
    seconds: float
    """That it took."""
    server_is_down: bool
    ask_shortly: Callable[[], Awaitable[object]]
    """One attempt at a short question there, with the settings of the request; a :class:`Fault` if it fails."""
    ask_plainly: Callable[[], Awaitable[object]]
    """The same, but any answer will do, be it without the tokens that the request asks about."""


class _End(msgspec.Struct, frozen=True):
    """Why the run is to end."""

    kind: type[ServerUnreachableError | ServerRefusedError]
    message: str


class Patience:
    """Shared by all requests of a run; every attempt is made through :meth:`attempt`.

    Args:
        addresses: the servers'.
        limit: seconds without an answer after which the run is to end.
        clock: a monotonic clock in seconds.
        sleep: waits for so many seconds of that clock.
        tell: is given a line while nothing is answered, and when there is an answer again.
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
        self._who = f"each of {len(addresses)} endpoints" if several else addresses[0]
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._tell = tell
        self._advice = advice

        self._requests = 0
        self._under_way: dict[asyncio.Task[object], float] = {}
        """When the attempts began that are under way, each by the task that makes it."""
        self._failing_since: float | None = None
        self._last: LostAttempt | None = None
        self._longest_failure = 0.0
        """Seconds of the longest failed attempt since the last answer."""
        self._watching: asyncio.Task[None] | None = None
        self._is_told = False
        self._long_waits: dict[Endpoint, Fault] = {}
        """What servers said last that ask to wait for longer than the limit."""
        self._refusing: set[Endpoint] = set()
        """Servers that said last that they take no request at all."""
        self._ever_answered = False
        self._refused = 0
        """Requests refused for good since the last answer."""
        self._refusals_allowed = _REFUSALS_LATER
        self._is_in_question = False
        self._waiting: dict[asyncio.Task[object], float] = {}
        """When tasks began to wait that are between two attempts."""
        self._interrupted: set[asyncio.Task[object]] = set()
        self._end: _End | None = None

    def begin(self) -> None:
        """A request begins, before its first attempt. The first one after a run's end is another run's."""
        if self._end is not None and not self._requests:
            self._end = None
            self._stop_clock()
        self._requests += 1

    def end(self) -> None:
        """A request that began ends, after its last attempt."""
        self._requests -= 1

    def attempt(self, work: Awaitable[T]) -> Awaitable[T]:
        """What comes of an attempt.

        Raises:
            ServerUnreachableError, ServerRefusedError: the run has ended meanwhile.
        """
        return self._unless_over(work, self._under_way)

    def answered(self, endpoint: Endpoint) -> None:
        """An answer came: all is well."""
        if self._is_told and self._failing_since is not None:
            self._tell(f"{self._who} answers again after {format_duration(self._clock() - self._failing_since)}")
        self._stop_clock()
        self._long_waits.pop(endpoint, None)
        self._refusing.discard(endpoint)
        self._ever_answered = True
        self._refused = 0
        self._refusals_allowed = _REFUSALS_LATER

    def failed(self, attempt: LostAttempt) -> None:
        """An attempt brought no answer.

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
        """Whether every attempt that ended since then, or before it, failed: an outage costs time, not attempts."""
        return self._failing_since is not None and self._failing_since <= when

    async def refused(self, attempt: LostAttempt) -> None:
        """A request ends because asking it again could change nothing.

        Raises:
            ServerRefusedError: so did many before it, with no answer between them, and a short question is refused too.
        """
        if attempt.fault.status is None:
            return
        self._refused += 1
        is_about_server = attempt.fault.status in REFUSALS and not self._ever_answered
        allowed = min(self._refusals_allowed, _REFUSALS_AT_FIRST) if is_about_server else self._refusals_allowed
        if self._refused < allowed:
            return
        if self._is_in_question:
            await self._until_that_is_decided()
            return
        self._is_in_question = True
        try:
            await self._end_if_all_is_refused(attempt)
        finally:
            self._is_in_question = False
        self._raise_if_over()

    async def _end_if_all_is_refused(self, attempt: LostAttempt) -> None:
        result = await _result(attempt.ask_shortly)
        if not isinstance(result, Fault) or result.retryability is not Retryability.NO:
            # It is the requests that are refused, or cannot be said now: that is not asked again soon.
            self._refused, self._refusals_allowed = 0, 2 * self._refusals_allowed
            self._ever_answered = True
            return
        refusal = f"{self._who} {how_refused(result)} ({result.message})"
        await self._until_all_under_way_has_ended(refusal)
        if self._refused:
            self._finish(
                ServerRefusedError,
                f"{refusal}; {self._advice(result)}; {_KEPT}, and the same command goes on with them",
            )

    async def _until_that_is_decided(self) -> None:
        while self._is_in_question:
            await self.wait(_LOOK_SOON_EVERY)

    async def _until_all_under_way_has_ended(self, refusal: str) -> None:
        """Wait for answers in the making, one of which would show that not everything is refused."""
        since, is_told = self._clock(), False
        while self._under_way and self._refused:
            await self._sleep(_LOOK_SOON_EVERY)
            if self._under_way and not is_told and self._clock() - since >= _TOLD_AFTER:
                is_told = True
                self._tell(f"{refusal}: the run ends unless one of the {len(self._under_way)} under way is answered")

    async def wait(self, seconds: float) -> None:
        """Wait before the next attempt.

        Raises:
            ServerUnreachableError, ServerRefusedError: the run has ended meanwhile.
        """
        await self._unless_over(self._sleep(seconds), self._waiting)

    async def wait_for_server(self, back: Awaitable[None]) -> None:
        """Wait until there is a server to ask.

        Raises:
            ServerUnreachableError, ServerRefusedError: the run has ended meanwhile.
        """
        self._start_clock()
        await self._unless_over(back, self._waiting)

    async def close(self) -> None:
        """End what goes on in the background."""
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
        self._is_told = False

    async def _watch(self, since: float) -> None:
        """Tell how long nothing has been answered, and end the run when time is up."""
        pause = _TOLD_AFTER
        tell_at = since + pause
        while True:
            now = self._clock()
            is_up = now >= since + self._limit
            if is_up and not self._is_answer_in_the_making():
                await self._end_unless_answered(now - since)
                return
            if now >= tell_at:
                self._is_told = True
                self._tell(self._standing(now - since))
                pause = min(max(2 * pause, _TOLD_AGAIN_AFTER), _TOLD_AT_LEAST_EVERY)
                tell_at = now + pause
            next_look = _LOOK_EVERY if is_up else since + self._limit - now
            await self._sleep(max(min(tell_at - now, next_look), _SHORTEST_PAUSE))

    async def _end_unless_answered(self, seconds: float) -> None:
        last = self._last
        if last is not None and not last.server_is_down and _is_answer(await _result(last.ask_plainly)):
            self._watching = None
            self.answered(last.endpoint)
            return
        self._finish(ServerUnreachableError, self._answered_nothing(seconds))

    def _is_answer_in_the_making(self) -> bool:
        """Whether a request is under way for longer than any took to fail: it is being worked on."""
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

    async def _unless_over(self, work: Awaitable[T], noted: dict[asyncio.Task[object], float]) -> T:
        """What comes of `work`, noted while it goes on; the run's end cuts it off."""
        if self._end is not None:
            self._refuse(work)
        # Every request comes this way: no timer, and no coroutine between this one and the attempt's.
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
        """Raise the run's end, unless somebody else cancelled the task, too."""
        if task not in self._interrupted:
            return
        self._interrupted.discard(task)
        if task.uncancel() <= cancelled_before:
            self._raise_if_over()

    def _standing(self, seconds: float) -> str:
        left = self._limit - seconds
        if left > 0:
            when = f"in {format_duration(left)} unless there is an answer"
        else:
            when = f"unless one of the {len(self._under_way)} requests under way is answered"
        return f"{self._no_answer()} for {format_duration(seconds)}{self._words()}: the run ends {when}"

    def _answered_nothing(self, seconds: float) -> str:
        return (
            f"{self._no_answer()} for {format_duration(seconds)}{self._words()}; {_KEPT}: {self._what_to_do()}, then "
            "run the same command again"
        )

    def _what_to_do(self) -> str:
        if self._last is not None and self._last.fault.is_at_proxy:
            return "start the proxy"
        return f"{'start' if self._is_down else 'see to'} the server{'s' if self._servers > 1 else ''}"

    def _asked_to_wait(self, endpoint: Endpoint, seconds: float) -> str:
        all_do = len(self._long_waits) == self._servers
        return (
            f"{self._who if all_do else endpoint.address} asks to wait {format_duration(seconds)} "
            f"({self._long_waits[endpoint].message}), longer than --give-up-after ({self._limit:g} s)"
            f"{'' if all_do else ', and the other endpoints refuse every request'}; {_KEPT}: run the same command "
            "again after that"
        )

    @property
    def _is_down(self) -> bool:
        return self._last is None or self._last.server_is_down

    def _no_answer(self) -> str:
        return f"nothing has answered at {self._where}" if self._is_down else f"{self._who} has answered nothing"

    def _words(self) -> str:
        return "" if self._last is None else f" (last: {self._last.fault.message})"


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("requests are made in asyncio tasks")
    return task


async def _result(ask: Callable[[], Awaitable[object]]) -> object:
    """What comes of a short question; None for nothing yet."""
    try:
        async with asyncio.timeout(_TRIAL_SECONDS):
            return await ask()
    except TimeoutError:
        return None


def _is_answer(result: object) -> bool:
    return result is not None and not isinstance(result, Fault)
