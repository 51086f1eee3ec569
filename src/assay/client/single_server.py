"""A run with a single server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.client.retry import Fault, Retryability
from assay.client.servers import Lease
from assay.errors import ServerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.client.endpoint import Endpoint
    from assay.client.health import ServerHealth


class SingleServer:
    """See :class:`assay.client.servers.Servers`. While the server is down, one of the waiting requests tries it."""

    def __init__(self, endpoint: Endpoint, health: ServerHealth) -> None:
        self._endpoint = endpoint
        self._health = health

    def enter(self, faults: Mapping[Endpoint, Fault]) -> Lease | None:  # noqa: ARG002
        """None while the server is down, except for a request that is due to try it again."""
        ticket = self._health.enter()
        return None if ticket is None else Lease(self._endpoint, ticket)

    async def wait(self) -> None:
        """Wait until it is time to try the server again."""
        await self._health.wait()

    def leave(self, lease: Lease) -> None:
        """Does nothing."""

    def answered(self, lease: Lease, seconds: float, faults: Mapping[Endpoint, Fault]) -> None:  # noqa: ARG002
        """The server is up."""
        self._health.alive()

    def down(self, lease: Lease, fault: Fault) -> None:
        """The server is down: other requests wait."""
        self._health.down(fault, lease.ticket)

    def failed(self, lease: Lease, fault: Fault) -> None:  # noqa: ARG002
        """The server is up, but this request failed."""
        if fault.retryability is Retryability.NO and fault.status is None:
            # Not this request's fault: the server's certificate will not be trusted later either.
            raise ServerUnreachableError(f"{self._endpoint.address}: {fault.message}")
        self._health.alive()

    def another(self, fault: Fault, faults: Mapping[Endpoint, Fault]) -> bool:  # noqa: ARG002
        """False: there is no other endpoint."""
        return False

    async def close(self) -> None:
        """Does nothing: there are no background tasks."""
