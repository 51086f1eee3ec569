"""The addresses of one server's endpoints, where its base URL can be read in two ways: with ``/v1`` and without.

The server itself tells which is meant: what it does not know at one address is asked once at the other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import yarl

from assay.client.retry import NetworkError
from assay.client.urls import readings, server_root, without_secrets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.client.transport import HTTPReply
    from assay.types import EndpointKind

_NOT_FOUND = frozenset({404, 405})
_ERRORS_OF_THE_RIGHT_ADDRESS = frozenset({400, 401, 402, 413, 422, 429, 500, 502, 503, 504})
_ABOUT_THE_MODEL = re.compile(rb"\bmodel\b", re.IGNORECASE)
"""In the body of a 404 from the right address, for an unknown model."""


class Addresses:
    """The URLs of one server's endpoints.

    Args:
        base_url: as the user gave it.

    Raises:
        SpecificationError: it is not an HTTP URL with a host.
    """

    def __init__(self, base_url: str) -> None:
        self.root = server_root(base_url)
        """The server's root, for messages and for paths such as ``/health``."""
        self._as_given = readings(base_url)
        self._readings = [
            {kind: yarl.URL(url) for kind, url in reading._asdict().items()} for reading in self._as_given
        ]
        self._reading = self._readings[0]
        self.is_settled = len(self._readings) == 1
        """Whether it is known which reading is right."""
        self._both_asked = False

    def __getitem__(self, kind: EndpointKind | Literal["models"]) -> yarl.URL:
        """An endpoint's URL, as far as known."""
        return self._reading[kind]

    def recorded(self, kind: EndpointKind | Literal["models"]) -> str:
        """An endpoint's URL to be recorded: spelt like the base URL, without secrets."""
        return without_secrets(self._as_given[self._readings.index(self._reading)]._asdict()[kind])

    def tried(self, kind: EndpointKind | Literal["models"]) -> str:
        """The URLs at which an endpoint was looked for, for messages."""
        asked = self._readings if self._both_asked and not self.is_settled else [self._reading]
        return " and ".join(without_secrets(str(reading[kind])) for reading in asked)

    async def ask(
        self, kind: EndpointKind | Literal["models"], send: Callable[[yarl.URL], Awaitable[HTTPReply]]
    ) -> HTTPReply:
        """Send a request to an endpoint; if the server does not know that URL, to the other reading's URL.

        Raises:
            NetworkError: as `send` raises for the first URL.
        """
        asked = self._reading
        reply = await send(asked[kind])
        if self.is_settled and asked is self._reading:
            return reply
        if reply.status not in _NOT_FOUND:
            self.is_settled = self.is_settled or _is_answer(reply)
            return reply
        if _ABOUT_THE_MODEL.search(reply.body or b""):
            return reply
        other = next(reading for reading in self._readings if reading is not asked)
        self._both_asked = True
        try:
            second = await send(other[kind])
        except NetworkError:
            return reply
        if not _is_answer(second) and second.status not in _ERRORS_OF_THE_RIGHT_ADDRESS:
            return reply
        self._reading, self.is_settled = other, True
        return second


def _is_answer(reply: HTTPReply) -> bool:
    """Whether a reply is good and not HTML, which some servers send for any path."""
    return reply.is_good and "html" not in reply.headers.get("Content-Type", "").lower()
