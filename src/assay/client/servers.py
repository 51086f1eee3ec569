"""The interface that chooses the server for an attempt: a single server or a pool of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.client.endpoint import Endpoint
    from assay.client.retry import Fault


class Lease(msgspec.Struct, frozen=True):
    """Permission to make one attempt at an endpoint."""

    endpoint: Endpoint
    ticket: int = 0
    """The number of the server's last outage when the attempt began."""


class Servers(Protocol):
    """Shared by all requests of a run. Call :meth:`enter` before every attempt and :meth:`leave` after it."""

    def enter(self, faults: Mapping[Endpoint, Fault]) -> Lease | None:
        """Choose a server for an attempt; None if none is available now.

        Args:
            faults: the last fault of this request at each endpoint where it failed.
        """

    async def wait(self) -> None:
        """Wait until it is worth calling :meth:`enter` again."""

    def leave(self, lease: Lease) -> None:
        """The attempt has ended, with whatever result."""

    def answered(self, lease: Lease, seconds: float, faults: Mapping[Endpoint, Fault]) -> None:
        """The attempt brought an answer.

        Args:
            lease: the attempt.
            seconds: how long it took.
            faults: the last fault of this request at each endpoint where it failed before.
        """

    def down(self, lease: Lease, fault: Fault) -> None:
        """The attempt found the server down."""

    def failed(self, lease: Lease, fault: Fault) -> None:
        """The attempt failed, but the server is up.

        Raises:
            ServerUnreachableError: no server can be used any more.
        """

    def another(self, fault: Fault, faults: Mapping[Endpoint, Fault]) -> bool:
        """Whether the request should try another endpoint at once.

        Args:
            fault: the request's last fault.
            faults: its last fault at each endpoint where it failed.
        """

    async def close(self) -> None:
        """Cancel background tasks."""
