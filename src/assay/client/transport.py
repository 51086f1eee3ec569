"""Types and limits of an HTTP exchange, independent of the client; see :mod:`assay.client.http1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from multidict import CIMultiDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LARGEST_REPLY = 64 * 2**20
"""Bytes, after decompression; a larger reply is a failure."""
LARGEST_ERROR_BODY = 2**16
"""Bytes to read of an error's body; only its beginning matters."""
# Servers on uvicorn and llama.cpp close connections idle for 5 s; closing first avoids sending on one that just closed.
KEEPALIVE = 4.0


class HTTPReply(msgspec.Struct, frozen=True):
    """A reply."""

    status: int
    fields: Sequence[tuple[bytes, bytes]]
    """Header fields as received."""
    body: bytes | None
    """None for the body of a 2xx that is larger than ``LARGEST_REPLY``. Of an error's body only the beginning."""

    @property
    def is_good(self) -> bool:
        """Whether its status is 2xx."""
        return is_success(self.status)

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields, with case-insensitive names."""
        decoded = ((name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in self.fields)
        return CIMultiDict(decoded)


def is_success(status: int) -> bool:
    """Whether an HTTP status is 2xx."""
    return 200 <= status < 300


class Stream(NamedTuple):
    """How to read a streamed reply."""

    feed: Callable[[bytes], bool]
    """Called with each chunk of a 2xx's body; returns whether to go on reading."""
    stall_timeout: float
    """Longest time in seconds between two chunks, once the body has begun."""
    is_done: Callable[[], bool] = lambda: False
    """Whether the last event has come, so that only the end of the body is missing."""
