"""One reply of HTTP/1.1 while it arrives. llhttp (by httptools) reads it."""

from __future__ import annotations

import ssl
import zlib
from typing import TYPE_CHECKING

import httptools

from assay.models.retry import Fault, Hope, NetworkError, os_reason, tls_refused
from assay.models.transport import LARGEST_ERROR_BODY, LARGEST_REPLY
from assay.types import FailureCause

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_LARGEST_HEAD = 2**18
# What aiohttp, and so lm-eval, forgives servers.
_FORGIVEN = {
    "lenient_headers": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_optional_lf_after_cr": True,
    "lenient_spaces_after_chunk_size": True,
}


class ArrivingReply:
    """A reply while it arrives.

    Args:
        over: done when the reply is there or will never be.
        feed: takes the parts of a good reply's body as they come, and says whether it wants more; without it they are
            collected.
    """

    def __init__(self, over: asyncio.Future[None], feed: Callable[[bytes], bool] | None = None) -> None:
        self.over = over
        self.status = 0
        """0 until the whole head has come."""
        self.fields: list[tuple[bytes, bytes]] = []
        """Of the head, as they came."""
        self.encoding = "identity"
        """How the body is compressed."""
        self.body: bytes | None = None
        self.allows_another = False
        """Whether the connection may carry another exchange."""
        self.body_begun = False
        self._feed = feed
        self._parts: list[bytes] = []
        self._size = 0
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_FORGIVEN)

    @property
    def is_good(self) -> bool:
        """Whether the reply is an answer, all of which is wanted, and no error."""
        return 200 <= self.status < 300

    def feed(self, data: memoryview) -> None:
        """Take in what has come."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.allows_another = False
            self._fail(FailureCause.MALFORMED_REPLY, f"not a reply of HTTP: {error}", Hope.SOME)
        if not self.status and not self.over.done():
            self._size += len(data)
            if self._size > _LARGEST_HEAD:
                self._fail(FailureCause.MALFORMED_REPLY, "not a reply of HTTP: its head does not end", Hope.SOME)

    def let_go_of_parser(self) -> None:
        """Nothing more will be fed. While the two refer to each other, the body waits for the garbage collector."""
        del self._parser

    def lose(self, error: Exception | None) -> None:
        """The connection has ended, by `error` or in order."""
        if self.is_good and not (error is None and self._ends_with_connection()):
            self._fail(FailureCause.RESET, "the connection closed before the reply was complete", Hope.SOME)
        elif self.status:
            self._end()
        elif isinstance(error, ssl.SSLError):
            self._raise(tls_refused(error))
        else:
            reason = os_reason(error) if error else "server disconnected"
            self._fail(FailureCause.RESET, f"the connection closed before a reply came: {reason}", Hope.UNSURE)

    def expire(self) -> None:
        """The time is up."""
        if self.status and not self.is_good:
            self._end()
        else:
            self._fail(FailureCause.TIMED_OUT, "no reply in time", Hope.SOME)

    def stall(self, seconds: float) -> None:
        """Nothing has come for so long."""
        self._fail(FailureCause.TIMED_OUT, f"the stream stalled: nothing came for {seconds:g} s", Hope.SOME)

    def on_message_begin(self) -> None:
        """A reply begins."""
        if self.over.done():
            raise ValueError("more than one reply to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of its head."""
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Its head is there."""
        self.status = self._parser.get_status_code()
        self._size = 0
        self.encoding = self._field(b"content-encoding") or "identity"
        if not self.is_good or self.encoding != "identity":
            self._feed = None

    def on_body(self, part: bytes) -> None:
        """A part of its body."""
        if self.over.done():
            return
        self.body_begun = True
        if self._feed is not None:
            if not self._feed(part):
                self._end()
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > (LARGEST_REPLY if self.is_good else LARGEST_ERROR_BODY):
            self._end(is_too_large=self.is_good)

    def on_message_complete(self) -> None:
        """It is whole."""
        if self.status < 200:  # 100 Continue, 103 Early Hints: the reply is still to come.
            self.status = 0
            self.fields.clear()
        elif not self.over.done():
            self.allows_another = self._parser.should_keep_alive()
            self._end()

    def decoded(self) -> bytes | None:
        """The body without its content encoding; None if it is too large.

        Raises:
            NetworkError: the body of an answer cannot be decoded.
        """
        if not self.body or self.encoding == "identity":
            return self.body
        try:
            return _decompressed(self.body, self.encoding)
        except (zlib.error, ValueError) as error:
            if not self.is_good:
                return b""
            message = f"the reply could not be decompressed: {error}"
            raise NetworkError(Fault(FailureCause.MALFORMED_REPLY, message, Hope.SOME)) from None

    def _end(self, *, is_too_large: bool = False) -> None:
        if not self.over.done():
            self.body = None if is_too_large else b"".join(self._parts)
            self.over.set_result(None)

    def _fail(self, cause: FailureCause, message: str, hope: Hope) -> None:
        self._raise(Fault(cause, message, hope))

    def _raise(self, fault: Fault) -> None:
        if not self.over.done():
            self.over.set_exception(NetworkError(fault))

    def _ends_with_connection(self) -> bool:
        """Whether nothing but the connection's end says where the body ends."""
        return self._field(b"content-length") is None and "chunked" not in (self._field(b"transfer-encoding") or "")

    def _field(self, wanted: bytes) -> str | None:
        """The first field of that name, in lower case."""
        for name, value in self.fields:
            if name.lower() == wanted:
                return value.decode("latin-1").strip().lower()
        return None


def _decompressed(body: bytes, encoding: str) -> bytes | None:
    if encoding in ("gzip", "x-gzip"):
        window = 16 + zlib.MAX_WBITS
    elif encoding == "deflate":  # With zlib's header as the standard has it, or without, as some servers have it.
        window = zlib.MAX_WBITS if body[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
    else:
        raise ValueError(f"the encoding {encoding!r} was not asked for")
    decompressed = b""
    while body:  # gzip may come in several members
        member = zlib.decompressobj(window)
        decompressed += member.decompress(body, LARGEST_REPLY + 1 - len(decompressed))
        if len(decompressed) > LARGEST_REPLY:
            return None
        if not member.eof:
            raise ValueError("it breaks off")
        body = member.unused_data
    return decompressed
