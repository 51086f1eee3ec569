"""Which server an attempt goes to, behind one small interface: a single one, or a pool of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.models.endpoint import Endpoint
    from assay.models.retry import Fault


class Lease(msgspec.Struct, frozen=True):
    """Leave to make one attempt."""

    endpoint: Endpoint
    ticket: int = 0
    """Which outage of the server came last when the attempt began."""


class Servers(Protocol):
    """Shared by all requests of a run. Every attempt is framed by :meth:`enter` and :meth:`leave`."""

    def enter(self, faults: Mapping[Endpoint, Fault]) -> Lease | None:
        """Leave to make an attempt; None while there is no server to make it at.

        Args:
            faults: the last fault of this request at each endpoint where it failed.
        """

    async def wait(self) -> None:
        """Wait until it is worth to try again to :meth:`enter`."""

    def leave(self, lease: Lease) -> None:
        """The attempt is over, however it ended."""

    def answered(self, lease: Lease, seconds: float, faults: Mapping[Endpoint, Fault]) -> None:
        """The attempt brought an answer after so many seconds.

        Args:
            lease: the attempt.
            seconds: that it took.
            faults: the last fault of this request at each endpoint where it failed before.
        """

    def down(self, lease: Lease, fault: Fault) -> None:
        """The attempt found the server down."""

    def failed(self, lease: Lease, fault: Fault) -> None:
        """The attempt failed at a server that is there.

        Raises:
            ServerUnreachableError: no server can be used.
        """

    def another(self, fault: Fault, faults: Mapping[Endpoint, Fault]) -> bool:
        """Whether a request had better try another endpoint at once than wait, or end.

        Args:
            fault: the last one.
            faults: the last one at each endpoint where it failed.
        """

    async def close(self) -> None:
        """End what goes on in the background."""
