"""The servers of a run, where there are several: replicas that share its requests, each taken out while it fails.

An attempt goes to the server that promises to be done with it first: the least of outstanding requests times the time
that one takes there, both smoothed and learnt on the way ("peak EWMA" of Finagle's and Linkerd's balancers). A server
that is down, refuses requests or fails several in a row is set aside: its requests go to the others, and looks at it
with growing pauses tell when it is back. Only while all are down does the run wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from assay.errors import ServerUnreachableError
from assay.models.pool_member import Member
from assay.models.retry import Fault, Retryability, is_bad_request
from assay.models.servers import Lease
from assay.types import FailureCause

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from assay.models.endpoint import Endpoint

_FAILURES_UNTIL_ASIDE = 3
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0


class Pool:
    """See :class:`assay.models.servers.Servers`.

    Args:
        endpoints: two or more, open as long as the pool is used.
        max_attempts: at one request. At most half are spent on going from server to server without a pause.
        clock: a monotonic clock in seconds.
        sleep: waits for so many seconds of that clock.
        rng: jitter for the pauses between looks.
        tell: is given a line when an endpoint is set aside and when it is back.
        object_to: what speaks against taking back an endpoint that is there again; None if nothing does.
        ask: the result of a short question there; a :class:`Fault` if there is no answer.
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
        object_to: Callable[[Endpoint], Awaitable[str | None]],
        ask: Callable[[Endpoint], Awaitable[object]],
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._members = {endpoint: Member(endpoint, _FIRST_PAUSE) for endpoint in endpoints}
        self._most_at_once = max_attempts // 2
        self._clock = clock
        self._sleep = sleep
        self._rng = rng
        self._tell = tell
        self._object_to = object_to
        self._ask = ask
        self._looks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set, and replaced, when a member is back."""

    @property
    def members(self) -> Sequence[Member]:
        """The endpoints with what is known of each."""
        return tuple(self._members.values())

    def enter(self, faults: Mapping[Endpoint, Fault]) -> Lease | None:
        """Choose an endpoint; None while there is none."""
        member = self._choose(faults)
        if member is None:
            return None
        member.outstanding += 1
        member.requests += 1
        return Lease(member.endpoint, member.times_aside)

    async def wait(self) -> None:
        """Until one is back."""
        await self._changed.wait()

    def leave(self, lease: Lease) -> None:
        """The attempt is over, however it ended."""
        self._members[lease.endpoint].outstanding -= 1

    def answered(self, lease: Lease, seconds: float, faults: Mapping[Endpoint, Fault]) -> None:
        """Learn from an answer, which also proves wrong those that took the request for a bad one."""
        member = self._members[lease.endpoint]
        member.learn(seconds, self._clock())
        member.failures_in_a_row = 0
        if lease.ticket == member.times_aside:
            member.pause = _FIRST_PAUSE
            self._take_back(member)
        for endpoint, fault in faults.items():
            if endpoint is not lease.endpoint and _is_objection(fault):
                self._count_failure(self._members[endpoint], fault)

    def down(self, lease: Lease, fault: Fault) -> None:
        """Leave the endpoint to looks."""
        member = self._members[lease.endpoint]
        member.faults[fault.cause] += 1
        self._set_aside(member, fault, is_down=True)

    def failed(self, lease: Lease, fault: Fault) -> None:
        """Note a failure; several in a row set the endpoint aside."""
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
        """Whether to try another endpoint at once: one that has not refused the request too, or not failed it yet.

        A request that one endpoint calls bad is put to one other.
        """
        if fault.retryability is Retryability.NO:
            if _is_refusal(fault):
                return not all(_refused(faults.get(endpoint)) for endpoint in self.endpoints)
            if not _is_objection(fault) or sum(map(_is_objection, faults.values())) > 1:
                return False
        untried = [member for member in self.members if member.endpoint not in faults]
        return len(faults) <= self._most_at_once and any(member.aside is None for member in untried)

    def begin_without(self, endpoint: Endpoint, reason: str) -> None:
        """Look at an endpoint until it is there, before anything is sent to it."""
        fault = Fault(FailureCause.UNREACHABLE, reason, Retryability.SERVER_DOWN)
        self._set_aside(self._members[endpoint], fault, is_down=True)

    async def close(self) -> None:
        """End all looks."""
        looks, self._looks = self._looks, set()
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    def _choose(self, faults: Mapping[Endpoint, Fault]) -> Member | None:
        """The endpoint for the next attempt at a request; None while there is none."""
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
        if _is_told(member.times_aside):
            self._tell(f"{member.endpoint.address} is set aside: {fault.message}")
        look = asyncio.create_task(self._look_after(member, fault.retry_after or 0.0))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _look_after(self, member: Member, least_pause: float) -> None:
        """Look at an endpoint that is set aside until it is back."""
        stay = member.times_aside
        while member.aside is not None and member.times_aside == stay:
            await self._sleep(max(member.pause * self._rng.uniform(0.5, 1.0), least_pause))
            least_pause = 0.0
            member.pause = min(2 * member.pause, _LONGEST_PAUSE)
            if await self._may_come_back(member):
                if member.times_aside == stay:
                    self._take_back(member)
                return

    async def _may_come_back(self, member: Member) -> bool:
        if not await member.endpoint.looks_alive() or await self._still_refuses(member):
            return False
        objection = await self._object_to(member.endpoint)
        if objection is None or member.aside is None:
            return True
        if member.aside.message != objection:
            self._tell(f"{member.endpoint.address} stays aside: {objection}")
        member.aside = Fault(FailureCause.NOT_FOUND, objection, Retryability.SERVER_DOWN)
        member.is_down = True
        return False

    async def _still_refuses(self, member: Member) -> bool:
        """Whether an endpoint that refused requests does so yet, of which its health tells nothing."""
        if member.aside is None or not _is_refusal(member.aside):
            return False
        result = await self._ask(member.endpoint)
        return isinstance(result, Fault) and _is_refusal(result)

    def _take_back(self, member: Member) -> None:
        if member.aside is None:
            return
        member.aside = None
        member.is_down = False
        # On trial: the next failure sets it aside again.
        member.failures_in_a_row = min(member.failures_in_a_row, _FAILURES_UNTIL_ASIDE - 1)
        if _is_told(member.times_aside):
            self._tell(f"{member.endpoint.address} is back")
        self._changed.set()
        self._changed = asyncio.Event()


def _is_refusal(fault: Fault) -> bool:
    """Whether the server, and not the request, is the reason why it would fail the same way again there."""
    return fault.retryability is Retryability.NO and not is_bad_request(fault)


def _is_objection(fault: Fault) -> bool:
    """Whether the server calls the request itself bad, for another reason than its length."""
    return is_bad_request(fault) and fault.cause is FailureCause.BAD_REQUEST


def _refused(fault: Fault | None) -> bool:
    return fault is not None and fault.retryability is Retryability.NO


def _is_final(fault: Fault) -> bool:
    """Whether no request will ever get through: the server's certificate is not trusted."""
    return fault.retryability is Retryability.NO and fault.status is None


def _is_told(times: int) -> bool:
    """Of what happens again and again, only the first, second, fourth, eighth … time is worth a line."""
    return times & (times - 1) == 0
