"""The transport for plain HTTP: one exchange at a time on each of a pool of connections.

llhttp (by httptools) reads HTTP, aiohappyeyeballs connects; here is which connection carries what, and when one may be
used again: after a whole reply that nothing followed, on a connection that is to be kept alive. No request is ever sent
twice: what a request that got no reply has set off at the server, nobody knows here.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from typing import TYPE_CHECKING, Any, Literal

import httptools
from aiohappyeyeballs import start_connection
from multidict import CIMultiDict

from assay.models.retry import Fault, Hope, NetworkError, os_reason
from assay.models.transport import (
    CONNECT_TIMEOUT,
    KEEPALIVE,
    LARGEST_ERROR_BODY,
    LARGEST_REPLY,
    Reply,
    watched_socket,
)
from assay.types import FailureCause

if TYPE_CHECKING:
    from collections.abc import Mapping

    import yarl

_ADDRESSES_LAST = 10.0
_SECOND_FAMILY_AFTER = 0.25
_LARGEST_HEAD = 2**18
# What aiohttp, and so lm-eval, forgives servers.
_FORGIVEN = {
    "lenient_headers": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_optional_lf_after_cr": True,
    "lenient_spaces_after_chunk_size": True,
}


class PlainHTTP:
    """See :class:`assay.models.transport.Transport`."""

    def __init__(self, url: yarl.URL, headers: Mapping[str, str]) -> None:
        self._host = url.host or ""
        self._port = url.port or 80
        fields = {"Host": url.host_port_subcomponent, **headers, "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
        self._fields = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._idle: list[_Connection] = []
        """The one used last comes last, and is used first."""
        self._addresses: list[Any] = []
        self._addresses_until = 0.0
        self._resolving = asyncio.Lock()

    async def request(
        self, method: Literal["GET", "POST"], url: yarl.URL, body: bytes = b"", *, timeout: float
    ) -> Reply:
        """Send a request and read its reply."""
        connection = self._take_idle() or await self._connect()
        try:
            exchange = await connection.exchange(self.head(method, url, len(body)) + body, timeout)
        finally:
            self._put_back(connection)
        return Reply(exchange.status, exchange.headers, _decoded(exchange))

    async def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().abort()
        await asyncio.sleep(0)  # Sockets are closed in the loop's next round.

    def head(self, method: Literal["GET", "POST"], url: yarl.URL, length: int) -> bytes:
        """The head of a request with a body of `length` bytes."""
        fields = self._fields if method == "GET" else f"{self._fields}Content-Length: {length}\r\n"
        return f"{method} {url.raw_path_qs} HTTP/1.1\r\n{fields}\r\n".encode("latin-1")

    def _take_idle(self) -> _Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and now - connection.idle_since < KEEPALIVE:
                return connection
            connection.abort()
        return None

    def _put_back(self, connection: _Connection) -> None:
        if connection.is_reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.abort()

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                sock = await start_connection(
                    await self._resolve(), happy_eyeballs_delay=_SECOND_FAMILY_AFTER, socket_factory=watched_socket
                )
                try:
                    _, connection = await asyncio.get_running_loop().create_connection(_Connection, sock=sock)
                except BaseException:
                    sock.close()
                    raise
        except TimeoutError:
            raise NetworkError(Fault(FailureCause.UNREACHABLE, "no connection in time", Hope.SERVER_DOWN)) from None
        except OSError as error:
            message = f"no connection: {os_reason(error)}"
            raise NetworkError(Fault(FailureCause.UNREACHABLE, message, Hope.SERVER_DOWN)) from error
        return connection

    async def _resolve(self) -> list[Any]:
        """The host's addresses, looked up by one request for all that connect at the time."""
        loop = asyncio.get_running_loop()
        async with self._resolving:
            if loop.time() >= self._addresses_until:
                self._addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                self._addresses_until = loop.time() + _ADDRESSES_LAST
            return self._addresses


class _Connection(asyncio.Protocol):
    """An open connection."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._exchange: _Exchange | None = None
        self._is_clean = False
        """Whether all that came so far belonged to whole replies, and the server will take another request."""

    async def exchange(self, request: bytes, timeout: float) -> _Exchange:
        """Send a request and wait for its reply; whatever else ends the wait leaves the connection unusable."""
        loop = asyncio.get_running_loop()
        exchange = self._exchange = _Exchange(loop.create_future())
        self._is_clean = False
        expiry = loop.call_later(timeout, exchange.expire)
        try:
            self._transport.write(request)
            await exchange.over
        finally:
            expiry.cancel()
        return exchange

    @property
    def is_reusable(self) -> bool:
        return self._is_clean and not self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.abort()  # Nothing was asked: no telling what a next reply would be the answer to.
            return
        exchange.feed(data)
        if exchange.over.done():
            self._exchange = None
            self._is_clean = exchange.allows_another and not self._transport.get_write_buffer_size()
            exchange.let_go_of_parser()

    def connection_lost(self, error: Exception | None) -> None:
        if self._exchange is not None:
            self._exchange.lose(error)


class _Exchange:
    """A reply while it arrives. Its methods in ``on_`` are called by the parser."""

    def __init__(self, over: asyncio.Future[None]) -> None:
        self.over = over
        """Done when the reply is there or will never be."""
        self.status = 0
        """0 until the whole head has come."""
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.body: bytes | None = None
        self.allows_another = False
        """Whether the connection may carry another exchange."""
        self._parts: list[bytes] = []
        self._size = 0
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_FORGIVEN)

    @property
    def is_good(self) -> bool:
        """Whether the reply is an answer, all of which is wanted, and no error."""
        return 200 <= self.status < 300

    def feed(self, data: bytes) -> None:
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
        else:
            reason = os_reason(error) if error else "server disconnected"
            self._fail(FailureCause.RESET, f"the connection closed before a reply came: {reason}", Hope.UNSURE)

    def expire(self) -> None:
        """The time is up."""
        if self.status and not self.is_good:
            self._end()
        else:
            self._fail(FailureCause.TIMED_OUT, "no reply in time", Hope.SOME)

    def on_message_begin(self) -> None:
        if self.over.done():
            raise ValueError("more than one reply to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.add(name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._size = 0

    def on_body(self, part: bytes) -> None:
        if self.over.done():
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > (LARGEST_REPLY if self.is_good else LARGEST_ERROR_BODY):
            self._end(is_too_large=self.is_good)

    def on_message_complete(self) -> None:
        if self.status < 200:  # 100 Continue, 103 Early Hints: the reply is still to come.
            self.status = 0
            self.headers.clear()
        elif not self.over.done():
            self.allows_another = self._parser.should_keep_alive()
            self._end()

    def _end(self, *, is_too_large: bool = False) -> None:
        if not self.over.done():
            self.body = None if is_too_large else b"".join(self._parts)
            self.over.set_result(None)

    def _fail(self, cause: FailureCause, message: str, hope: Hope) -> None:
        if not self.over.done():
            self.over.set_exception(NetworkError(Fault(cause, message, hope)))

    def _ends_with_connection(self) -> bool:
        """Whether nothing but the connection's end says where the body ends."""
        encodings = self.headers.get("Transfer-Encoding", "")
        return "Content-Length" not in self.headers and "chunked" not in encodings.lower()


def _decoded(reply: _Exchange) -> bytes | None:
    """The reply's body without its content encoding; None if that makes it too large."""
    encoding = reply.headers.get("Content-Encoding", "identity").strip().lower()
    if not reply.body or encoding == "identity":
        return reply.body
    try:
        return _decompressed(reply.body, encoding)
    except (zlib.error, ValueError) as error:
        if not reply.is_good:
            return b""
        message = f"the reply could not be decompressed: {error}"
        raise NetworkError(Fault(FailureCause.MALFORMED_REPLY, message, Hope.SOME)) from None


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
