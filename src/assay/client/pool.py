"""A pool of replicas that share a run's requests; a replica that fails is set aside.

An attempt goes to the server that will probably answer it first: the one with the least (outstanding requests + 1) ×
(smoothed seconds of an answer), as in the "peak EWMA" balancers of Finagle and Linkerd. A server that is down, refuses
requests or fails several times in a row is set aside: its requests go to the others, and health checks with growing
pauses find out when it is back. The run waits only while all servers are down.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from assay.client.pool_member import Member
from assay.client.retry import Fault, Retryability, is_bad_request
from assay.client.servers import Lease
from assay.errors import ServerUnreachableError
from assay.types import FailureCause

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from assay.client.endpoint import Endpoint

_FAILURES_UNTIL_ASIDE = 3
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0


class Pool:
    """See :class:`assay.client.servers.Servers`.

    Args:
        endpoints: two or more, open as long as the pool is used.
        max_attempts: attempts at one request. At most half of them go from server to server without a pause.
        clock: a monotonic clock in seconds.
        sleep: waits for so many seconds of that clock.
        rng: jitter for the pauses between health checks.
        tell: called with a line when an endpoint is set aside and when it is back.
        why_not_readmitted: the reason not to take back an endpoint that answers again; None if there is none.
        ask: asks an endpoint a short question; returns a :class:`Fault` if there is no answer.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        max_attempts: int,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        rng: random.Random,
        tell: Callable[[str], None],
        why_not_readmitted: Callable[[Endpoint], Awaitable[str | None]],
        ask: Callable[[Endpoint], Awaitable[object]],
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._members = {endpoint: Member(endpoint, _FIRST_PAUSE) for endpoint in endpoints}
        self._most_without_pause = max_attempts // 2
        self._clock = clock
        self._sleep = sleep
        self._rng = rng
        self._tell = tell
        self._why_not_readmitted = why_not_readmitted
        self._ask = ask
        self._checks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set, and replaced, when a member is back."""

    @property
    def members(self) -> Sequence[Member]:
        """The endpoints with their state."""
        return tuple(self._members.values())

    def enter(self, faults: Mapping[Endpoint, Fault]) -> Lease | None:
        """Choose an endpoint for an attempt; None if no endpoint is available."""
        member = self._choose(faults)
        if member is None:
            return None
        member.outstanding += 1
        member.requests += 1
        return Lease(member.endpoint, member.times_aside)

    async def wait(self) -> None:
        """Wait until an endpoint is back."""
        await self._changed.wait()

    def leave(self, lease: Lease) -> None:
        """The attempt has ended, with whatever result."""
        self._members[lease.endpoint].outstanding -= 1

    def answered(self, lease: Lease, seconds: float, faults: Mapping[Endpoint, Fault]) -> None:
        """Record an answer. It also counts as a failure of the endpoints that had called the request bad."""
        member = self._members[lease.endpoint]
        member.learn(seconds, self._clock())
        member.failures_in_a_row = 0
        if lease.ticket == member.times_aside:
            member.pause = _FIRST_PAUSE
            self._readmit(member)
        for endpoint, fault in faults.items():
            if endpoint is not lease.endpoint and _calls_request_bad(fault):
                self._count_failure(self._members[endpoint], fault)

    def down(self, lease: Lease, fault: Fault) -> None:
        """Set the endpoint aside until a health check finds it up."""
        member = self._members[lease.endpoint]
        member.faults[fault.cause] += 1
        self._set_aside(member, fault, is_down=True)

    def failed(self, lease: Lease, fault: Fault) -> None:
        """Record a failure; several in a row set the endpoint aside."""
        member = self._members[lease.endpoint]
        member.faults[fault.cause] += 1
        if is_bad_request(fault):
            return  # the request's own fault, unless another endpoint answers it
        self._count_failure(member, fault)
        if all(one.aside is not None and _is_final(one.aside) for one in self.members):
            raise ServerUnreachableError(
                f"each of {len(self.endpoints)} endpoints is out of reach; {lease.endpoint.address}: {fault.message}"
            )

    def another(self, fault: Fault, faults: Mapping[Endpoint, Fault]) -> bool:
        """Whether to try another endpoint at once, without a pause.

        Endpoints that have refused the request are left out. A request that one endpoint calls bad goes to only one
        other.
        """
        if fault.retryability is Retryability.NO:
            if _is_refusal(fault):
                return not all(_refused(faults.get(endpoint)) for endpoint in self.endpoints)
            if not _calls_request_bad(fault) or sum(map(_calls_request_bad, faults.values())) > 1:
                return False
        untried = [member for member in self.members if member.endpoint not in faults]
        return len(faults) <= self._most_without_pause and any(member.aside is None for member in untried)

    def start_aside(self, endpoint: Endpoint, reason: str) -> None:
        """Set an endpoint aside that is absent when the run begins."""
        fault = Fault(FailureCause.UNREACHABLE, reason, Retryability.SERVER_DOWN)
        self._set_aside(self._members[endpoint], fault, is_down=True)

    async def close(self) -> None:
        """Cancel all health checks."""
        checks, self._checks = self._checks, set()
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)

    def _choose(self, faults: Mapping[Endpoint, Fault]) -> Member | None:
        """The endpoint for the next attempt at a request; None if no endpoint is available."""
        possible = [member for member in self.members if not _refused(faults.get(member.endpoint))]
        ready = [member for member in possible if member.aside is None]
        untried = [member for member in ready if member.endpoint not in faults]
        candidates = untried or ready or [member for member in possible if not member.is_down]
        if not candidates:
            return None
        typical, now = self._typical_seconds(), self._clock()
        return min(candidates, key=lambda member: (member.expected_wait(typical, now), member.requests))

    def _typical_seconds(self) -> float:
        known = [member.seconds for member in self.members if member.seconds is not None]
        return sum(known) / len(known) if known else 1.0

    def _count_failure(self, member: Member, fault: Fault) -> None:
        member.failures_in_a_row += 1
        if _is_final(fault) or fault.retry_after is not None or member.failures_in_a_row >= _FAILURES_UNTIL_ASIDE:
            self._set_aside(member, fault, is_down=_is_final(fault))

    def _set_aside(self, member: Member, fault: Fault, *, is_down: bool) -> None:
        if member.aside is not None:
            member.is_down = member.is_down or is_down
            return
        member.aside = fault
        member.is_down = is_down
        member.times_aside += 1
        if _is_worth_reporting(member.times_aside):
            self._tell(f"{member.endpoint.address} is set aside: {fault.message}")
        check = asyncio.create_task(self._watch_until_back(member, fault.retry_after or 0.0))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)

    async def _watch_until_back(self, member: Member, least_pause: float) -> None:
        """Check an endpoint that is set aside until it is back."""
        outage = member.times_aside
        while member.aside is not None and member.times_aside == outage:
            await self._sleep(max(member.pause * self._rng.uniform(0.5, 1.0), least_pause))
            least_pause = 0.0
            member.pause = min(2 * member.pause, _LONGEST_PAUSE)
            if await self._may_come_back(member):
                if member.times_aside == outage:
                    self._readmit(member)
                return

    async def _may_come_back(self, member: Member) -> bool:
        if not await member.endpoint.looks_alive() or await self._still_refuses(member):
            return False
        reason = await self._why_not_readmitted(member.endpoint)
        if reason is None or member.aside is None:
            return True
        if member.aside.message != reason:
            self._tell(f"{member.endpoint.address} stays aside: {reason}")
        member.aside = Fault(FailureCause.NOT_FOUND, reason, Retryability.SERVER_DOWN)
        member.is_down = True
        return False

    async def _still_refuses(self, member: Member) -> bool:
        """Whether an endpoint that refused requests still does. Its ``/health`` does not show that, so ask it."""
        if member.aside is None or not _is_refusal(member.aside):
            return False
        result = await self._ask(member.endpoint)
        return isinstance(result, Fault) and _is_refusal(result)

    def _readmit(self, member: Member) -> None:
        if member.aside is None:
            return
        member.aside = None
        member.is_down = False
        # On trial: the next failure sets it aside again.
        member.failures_in_a_row = min(member.failures_in_a_row, _FAILURES_UNTIL_ASIDE - 1)
        if _is_worth_reporting(member.times_aside):
            self._tell(f"{member.endpoint.address} is back")
        self._changed.set()
        self._changed = asyncio.Event()


def _is_refusal(fault: Fault) -> bool:
    """Whether the server would refuse any request, not only this one."""
    return fault.retryability is Retryability.NO and not is_bad_request(fault)


def _calls_request_bad(fault: Fault) -> bool:
    """Whether the server calls the request itself bad, for a reason other than its length."""
    return is_bad_request(fault) and fault.cause is FailureCause.BAD_REQUEST


def _refused(fault: Fault | None) -> bool:
    return fault is not None and fault.retryability is Retryability.NO


def _is_final(fault: Fault) -> bool:
    """Whether no request will ever get through: the server's certificate is not trusted."""
    return fault.retryability is Retryability.NO and fault.status is None


def _is_worth_reporting(times: int) -> bool:
    """Whether to report a repeated event: the first, second, fourth, eighth … time."""
    return times & (times - 1) == 0
