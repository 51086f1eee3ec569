"""Reads HTTP/1.1 replies while they arrive. llhttp (by httptools) parses them."""

from __future__ import annotations

import re
import ssl
import zlib
from typing import TYPE_CHECKING

import httptools

from assay.client.retry import Fault, NetworkError, Retryability, os_reason
from assay.client.tls_faults import lost_connection_fault, tls_fault
from assay.client.transport import LARGEST_ERROR_BODY, LARGEST_REPLY, HTTPReply, is_success
from assay.types import FailureCause

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_LARGEST_HEAD = 2**18
_ALERT_OF_TLS = re.compile(rb"\x15\x03[\x00-\x04]")
_BEGINNING_OF_HTTP2 = re.compile(rb"\x00[\x00-\x01].\x04[\x00\x01]\x00{4}", re.DOTALL)
# The leniencies of aiohttp, and so of lm-eval.
_LENIENCIES = {
    "lenient_headers": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_optional_lf_after_cr": True,
    "lenient_spaces_after_chunk_size": True,
}
_MISSING_CR = "Missing expected CR after chunk"
"""llhttp's error for chunks whose lines end with a line feed alone."""
_COMPRESSIONS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "compress"})
"""Other values of ``Content-Encoding``, such as ``none`` and ``utf-8``, mean no compression to any client."""


class ReplyReader:
    """Reads the replies of one connection, one after another, and drops each when it is complete.

    A parser and its callbacks form a reference cycle. With a new reader for each reply, every body would stay in memory
    until the garbage collector runs.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_LENIENCIES)
        self._parts: list[bytes] = []
        self.over: asyncio.Future[HTTPReply] | None = None
        """The future of the current reply; None if no reply is expected."""

    def begin(self, over: asyncio.Future[HTTPReply], feed: Callable[[bytes], bool] | None = None) -> None:
        """Expect a reply.

        Args:
            over: set to the reply, or to the error that prevents it.
            feed: called with each chunk of a good reply's body; returns whether to go on reading. Without it the body
                is collected.
        """
        self.over = over
        self._feed = feed
        self._status = 0
        """0 until the whole head has come."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._compressions: list[str] = []
        """How the body is compressed, in the order in which that was done."""
        self._size = 0
        self.body_begun = False
        self.allows_another = False
        """Whether the connection may carry another exchange."""

    @property
    def _is_good(self) -> bool:
        """Whether the reply is an answer, all of which is wanted, and no error."""
        return is_success(self._status)

    @property
    def reads_error(self) -> bool:
        """Whether what arrives is the body of an error."""
        return bool(self._status) and not self._is_good

    def feed(self, data: memoryview) -> bool:
        """Take in what has come; whether the reply is over."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.allows_another = False
            self._raise(self._parse_fault(error, data))
        if not self._status:
            self._size += len(data)
            if self._size > _LARGEST_HEAD:
                self._fail(FailureCause.MALFORMED_REPLY, "not a reply of HTTP: its head does not end", Retryability.YES)
        return self.over is None

    def _parse_fault(self, error: Exception, data: memoryview) -> Fault:
        if isinstance(error, httptools.HttpParserUpgrade):
            message = f"the server changes to another protocol (HTTP {self._parser.get_status_code()})"
            return Fault(FailureCause.MALFORMED_REPLY, message, Retryability.YES)
        if str(error).startswith(_MISSING_CR):
            message = f"the reply's chunks are not of HTTP: {error}"
            return Fault(FailureCause.UNREADABLE_REPLY, message, Retryability.NO, self._status)
        return _not_http(error, bytes(data[:16]))

    def lose(self, error: Exception | None) -> None:
        """The connection has closed, because of `error` if there is one."""
        if self.over is None:
            return
        if self._is_good and not (error is None and self._ends_with_connection()):
            self._fail(FailureCause.RESET, "the connection closed before the reply was complete", Retryability.YES)
        elif self._status:
            self._end()
        elif isinstance(error, ssl.SSLError):
            self._raise(lost_connection_fault(error))
        else:
            reason = os_reason(error) if error else "server disconnected"
            self._fail(FailureCause.RESET, f"the connection closed before a reply came: {reason}", Retryability.UNSURE)

    def expire(self) -> None:
        """The deadline has passed."""
        if self.reads_error:
            self._end()
        else:
            self._fail(FailureCause.TIMED_OUT, "no reply in time", Retryability.YES)

    def stall(self, seconds: float) -> None:
        """No data has come for so many seconds."""
        self._fail(FailureCause.TIMED_OUT, f"the stream stalled: nothing came for {seconds:g} s", Retryability.YES)

    def on_message_begin(self) -> None:
        """A reply begins."""
        if self.over is None:
            raise ValueError("more than one reply to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of its head."""
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Its head is there."""
        self._status = self._parser.get_status_code()
        self._size = 0
        encoding = self._field(b"content-encoding")
        self._compressions = _named_compressions(encoding) if encoding else []
        if not self._is_good or self._compressions:
            self._feed = None
        if self._status < 100:
            self._fail(
                FailureCause.MALFORMED_REPLY, f"not a reply of HTTP: its status is {self._status}", Retryability.YES
            )
        # With it, a chunk's line that lacks its CR is read one byte off, and the end waited for in vain.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=False)

    def on_body(self, part: bytes) -> None:
        """A part of its body."""
        if self.over is None:
            return
        self.body_begun = True
        if self._feed is not None:
            if not self._feed(part):
                self._end()
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > (LARGEST_REPLY if self._is_good else LARGEST_ERROR_BODY):
            self._end(is_too_large=self._is_good)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)
        if self._status < 200:  # 100 Continue, 103 Early Hints: the reply is still to come.
            self._status = 0
            self._fields.clear()
        elif self.over is not None:
            self.allows_another = self._parser.should_keep_alive()
            self._end()

    def _end(self, *, is_too_large: bool = False) -> None:
        body = None if is_too_large else b"".join(self._parts)
        try:
            if self._compressions:
                for compression in reversed(self._compressions):
                    body = body and _decompressed(body, compression)
        except (zlib.error, ValueError) as error:
            if self._is_good:
                message = f"the reply could not be decompressed: {error}"
                fault = Fault(FailureCause.MALFORMED_REPLY, message, Retryability.YES, self._status)
                if isinstance(error, _UnknownCompressionError):
                    fault = Fault(FailureCause.UNREADABLE_REPLY, message, Retryability.NO, self._status)
                self._raise(fault)
                return
            body = b""
        over = self._let_go()
        if over is not None:
            over.set_result(HTTPReply(self._status, self._fields, body))

    def _fail(self, cause: FailureCause, message: str, retryability: Retryability) -> None:
        self._raise(Fault(cause, message, retryability))

    def _raise(self, fault: Fault) -> None:
        over = self._let_go()
        if over is not None:
            over.set_exception(NetworkError(fault))

    def _let_go(self) -> asyncio.Future[HTTPReply] | None:
        """Forget the current reply and return its future, if somebody still awaits it."""
        over, self.over = self.over, None
        self._parts.clear()
        return None if over is None or over.done() else over

    def _ends_with_connection(self) -> bool:
        """Whether the body ends only when the connection closes."""
        return self._field(b"content-length") is None and "chunked" not in (self._field(b"transfer-encoding") or "")

    def _field(self, wanted: bytes) -> str | None:
        """The value of a header field, in lower case; repeated fields are joined."""
        found = None
        for name, value in self._fields:
            if name.lower() == wanted:
                found = value if found is None else b"%b,%b" % (found, value)
        return None if found is None else found.decode("latin-1").strip().lower()


def _not_http(error: Exception, beginning: bytes) -> Fault:
    if _ALERT_OF_TLS.match(beginning):
        return tls_fault()
    if _BEGINNING_OF_HTTP2.match(beginning):
        message = "the server speaks HTTP/2 alone at this port: is it a gRPC port?"
        return Fault(FailureCause.UNREACHABLE, message, Retryability.NO)
    return Fault(FailureCause.MALFORMED_REPLY, f"not a reply of HTTP: {error}", Retryability.YES)


def _named_compressions(encoding: str) -> list[str]:
    return [name for part in encoding.split(",") if (name := part.strip()) in _COMPRESSIONS]


class _UnknownCompressionError(ValueError):
    """One that was not asked for."""


def _decompressed(body: bytes, compression: str) -> bytes | None:
    if compression in ("gzip", "x-gzip"):
        window = 16 + zlib.MAX_WBITS
    elif compression == "deflate":  # With zlib's header as the standard has it, or without, as some servers have it.
        window = zlib.MAX_WBITS if body[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
    else:
        raise _UnknownCompressionError(f"the encoding {compression!r} was not asked for")
    decompressed = b""
    while body:  # gzip may come in several members
        member = zlib.decompressobj(window)
        decompressed += member.decompress(body, LARGEST_REPLY + 1 - len(decompressed))
        if len(decompressed) > LARGEST_REPLY:
            return None
        if not member.eof:  # Some servers leave out the end; whether all was said, what was said shows.
            break
        body = member.unused_data.lstrip(b"\0")  # with which gzip may be filled up
    return decompressed
