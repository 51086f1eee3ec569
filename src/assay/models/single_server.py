"""The servers of a run, where there is only one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import ServerUnreachableError
from assay.models.retry import Fault, Retryability
from assay.models.servers import Lease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.models.endpoint import Endpoint
    from assay.models.health import ServerHealth


class SingleServer:
    """See :class:`assay.models.servers.Servers`. Requests themselves try a server that is down."""

    def __init__(self, endpoint: Endpoint, health: ServerHealth) -> None:
        self._endpoint = endpoint
        self._health = health

    def enter(self, faults: Mapping[Endpoint, Fault]) -> Lease | None:  # noqa: ARG002
        """None while the server is down, but for those that find out whether it is back."""
        ticket = self._health.enter()
        return None if ticket is None else Lease(self._endpoint, ticket)

    async def wait(self) -> None:
        """Until it is time to find out."""
        await self._health.wait()

    def leave(self, lease: Lease) -> None:
        """Nothing to note."""

    def answered(self, lease: Lease, seconds: float, faults: Mapping[Endpoint, Fault]) -> None:  # noqa: ARG002
        """An answer came."""
        self._health.alive()

    def down(self, lease: Lease, fault: Fault) -> None:
        """Others will wait."""
        self._health.down(fault, lease.ticket)

    def failed(self, lease: Lease, fault: Fault) -> None:  # noqa: ARG002
        """The server is there, and refuses this request or fails it."""
        if fault.retryability is Retryability.NO and fault.status is None:
            # Nothing about the request: no certificate will be trusted later.
            raise ServerUnreachableError(f"{self._endpoint.address}: {fault.message}")
        self._health.alive()

    def another(self, fault: Fault, faults: Mapping[Endpoint, Fault]) -> bool:  # noqa: ARG002
        """There is no other."""
        return False

    async def close(self) -> None:
        """Nothing goes on in the background."""
