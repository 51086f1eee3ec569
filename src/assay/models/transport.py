"""What is known of an exchange with a server, whoever carries it out; see :mod:`assay.models.http1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from multidict import CIMultiDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LARGEST_REPLY = 64 * 2**20
"""Bytes, after decompression; a larger reply is a failure."""
LARGEST_ERROR_BODY = 2**16
"""Bytes read of the body of an error, of which only the beginning is of interest."""
# Servers on uvicorn and llama.cpp close connections idle for 5 s; closing first avoids sending on one that just closed.
KEEPALIVE = 4.0


class HTTPReply(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    fields: Sequence[tuple[bytes, bytes]]
    """Of the head, as they came."""
    body: bytes | None
    """None for the body of a 2xx that is larger than ``LARGEST_REPLY``; of other bodies the beginning, as it came."""

    @property
    def is_good(self) -> bool:
        """Whether it is an answer, and no error."""
        return is_success(self.status)

    @property
    def headers(self) -> Mapping[str, str]:
        """The fields by name, whatever its case."""
        decoded = ((name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in self.fields)
        return CIMultiDict(decoded)


def is_success(status: int) -> bool:
    """Whether an HTTP status is that of an answer, and no error."""
    return 200 <= status < 300


class Stream(NamedTuple):
    """How a reply is read that comes in parts over a long time."""

    feed: Callable[[bytes], bool]
    """Takes the parts of a 2xx's body as they come, and says whether it wants more."""
    stall_timeout: float
    """Seconds, once the body has begun, without a byte of it."""
    is_done: Callable[[], bool] = lambda: False
    """Whether all was said that is said in a stream, and no more than the body's end is waited for."""
