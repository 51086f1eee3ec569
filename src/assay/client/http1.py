"""An HTTP/1.1 client with a pool of connections, each for one exchange at a time. It costs a third of aiohttp's CPU.

A connection is used again after a complete reply with nothing after it, if it is to be kept alive; after a stream, only
once the server has been seen to keep one open. No request is sent twice: a request without a reply may still have taken
effect at the server.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Literal

from assay.client.connecting import Connector, proxy_authorization
from assay.client.http1_reply import ReplyReader
from assay.client.retry import NetworkError, Retryability
from assay.client.tls_faults import tls_fault, wordless_fault
from assay.client.transport import KEEPALIVE, HTTPReply

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    import yarl

    from assay.client.retry import Fault
    from assay.client.transport import Stream

_BUFFER = 2**16
_ERROR_BODY_SECONDS = 10.0
"""Time limit for the body of an error after its head. The body only explains the error."""
_END_OF_STREAM_SECONDS = 2.0
"""Time limit for the end of a stream's body after its last event."""
_CLOSES_WITHIN = 1.0
"""Seconds after a stream within which a server closes the connection, if it does so after streams."""


class HTTP1:
    """A client of one server. It keeps connections open, follows no redirects and sends each request once.

    Args:
        url: the server's address.
        headers: sent with every request.
        proxy: the proxy to use, if any; see :func:`assay.client.proxies.proxy_for`.
        context: for TLS; needed if the server or the proxy uses it.
    """

    def __init__(
        self, url: yarl.URL, headers: Mapping[str, str], proxy: yarl.URL | None, context: ssl.SSLContext | None
    ) -> None:
        self._connector = Connector(url, proxy, context)
        self._is_proxied = proxy is not None and url.scheme == "http"
        """Whether requests are addressed to the proxy (plain HTTP), not tunnelled through it."""
        # The zone of an IPv6 address means something only on this machine, so it is not sent.
        host = re.sub(r"^(\[[^%\]]*)%[^\]]*", r"\1", url.host_port_subcomponent or "")
        own = {"Host": host, "Accept": "*/*", "Accept-Encoding": "gzip, deflate"}
        given = {name.lower() for name in headers}
        fields = {**{name: value for name, value in own.items() if name.lower() not in given}, **headers}
        if proxy is not None and self._is_proxied:
            fields |= proxy_authorization(proxy)
        self._fields = _encode_fields(fields)
        self._fields_of_streams = _encode_fields(
            fields | {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        )
        self._heads: dict[tuple[str, yarl.URL, bool], bytes] = {}
        """Encoded request heads, by method, URL and whether the reply is streamed."""
        self._buffer = memoryview(bytearray(_BUFFER))
        """Receive buffer shared by all connections; each read is consumed at once."""
        self._idle: list[_Connection] = []
        """Idle connections; the most recently used is last and is used first."""
        self._speaks_tls = url.scheme == "https"
        self._was_answered = False
        """Whether any request got a reply, of whatever status."""
        self._has_checked_protocol = False
        """Whether the server was checked for another protocol, which takes seconds and is done only once."""
        self._keeps_after_streams = False
        """Whether the server was seen to keep a connection after a stream. llama.cpp promises it and closes anyway."""
        self._watched: _Connection | None = None
        """A connection that carried a stream and is watched for whether the server closes it."""

    async def request(
        self,
        method: Literal["GET", "POST"],
        url: yarl.URL,
        body: bytes = b"",
        *,
        timeout: float,
        stream: Stream | None = None,
    ) -> HTTPReply:
        """Send a request and read its reply.

        Args:
            method: the HTTP method.
            url: a URL of this client's server.
            body: the body.
            timeout: seconds for the exchange, counted from when the connection is open.
            stream: receives the body of a 2xx; the reply's own body is then empty.

        Raises:
            NetworkError: no complete reply came.
        """
        connection = self._take_idle() or await self._connector.connect(self._make_connection)
        head = self.head(method, url, is_streamed=stream is not None)
        end_of_head = b"Content-Length: %d\r\n\r\n" % len(body) if method == "POST" else b"\r\n"
        try:
            reply = await connection.send(b"".join((head, end_of_head, body)), timeout, stream)
        except NetworkError as error:
            if error.fault.retryability is Retryability.UNSURE and not self._was_answered:
                raise NetworkError(await self._explain(error.fault)) from error
            raise
        finally:
            if stream is None or self._keeps_after_streams:
                self._put_back(connection)
            else:
                self._watch(connection)
        self._was_answered = True
        if stream is not None and reply.body and reply.is_good:  # compressed although we asked for identity
            stream.feed(reply.body)
            return HTTPReply(reply.status, reply.fields, b"")
        return reply

    async def _explain(self, fault: Fault) -> Fault:
        """A better fault for a server that has never replied: it may speak another protocol."""
        if self._speaks_tls:
            return wordless_fault(fault)
        if self._has_checked_protocol:
            return fault
        self._has_checked_protocol = True
        return tls_fault() if await self._connector.speaks_tls() else fault

    async def close(self) -> None:
        """Close all connections."""
        if self._watched is not None:
            self._watched.abort()
        while self._idle:
            self._idle.pop().abort()
        await asyncio.sleep(0)  # sockets are closed in the loop's next iteration

    def head(self, method: Literal["GET", "POST"], url: yarl.URL, *, is_streamed: bool = False) -> bytes:
        """The head of a request, without ``Content-Length``."""
        written = self._heads.get((method, url, is_streamed))
        if written is None:
            fields = self._fields_of_streams if is_streamed else self._fields
            target = str(url.with_fragment(None)) if self._is_proxied else url.raw_path_qs
            written = f"{method} {target} HTTP/1.1\r\n{fields}".encode("latin-1")
            self._heads[method, url, is_streamed] = written
        return written

    def _make_connection(self) -> _Connection:
        return _Connection(self._buffer)

    def _take_idle(self) -> _Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and now - connection.last_byte < KEEPALIVE:
                return connection
            connection.abort()
        return None

    def _put_back(self, connection: _Connection) -> None:
        if connection.is_reusable:
            self._idle.append(connection)
        else:
            connection.abort()

    def _watch(self, connection: _Connection) -> None:
        """Find out whether a connection stays open after a stream; one at a time is enough."""
        if self._watched is None and connection.is_reusable:
            self._watched = connection
            asyncio.get_running_loop().call_later(_CLOSES_WITHIN, self._end_watch)
        else:
            connection.abort()

    def _end_watch(self) -> None:
        connection, self._watched = self._watched, None
        if connection is not None:
            self._keeps_after_streams = connection.is_reusable
            self._put_back(connection)


class _Connection(asyncio.BufferedProtocol):
    """An open connection.

    Args:
        buffer: the receive buffer, shared by all connections of one event loop.
    """

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._loop = asyncio.get_running_loop()
        self.last_byte = 0.0
        """When it came, by the loop's clock."""
        self._reader = ReplyReader()
        self._is_clean = False
        """Whether everything received belonged to complete replies and the server will take another request."""
        self._stream: Stream | None = None
        """The reader of a streamed reply, if the reply is streamed."""
        self._expires = 0.0
        """The reply's deadline."""
        self._alarm: asyncio.TimerHandle | None = None
        """A timer that fires no later than the deadline."""
        self._stall_alarm: asyncio.TimerHandle | None = None

    def send(self, request: bytes, timeout: float, stream: Stream | None) -> asyncio.Future[HTTPReply]:
        """Send a request and return a future for its reply. Cancelling it leaves the connection unusable."""
        over: asyncio.Future[HTTPReply] = self._loop.create_future()
        self._reader.begin(over, None if stream is None else stream.feed)
        self._is_clean = False
        self._stream = stream
        self._expires = self._loop.time() + timeout
        if self._alarm is None or self._alarm.when() > self._expires:
            self._set_alarm()
        if stream is not None:
            self._watch_for_stall(stream.stall_timeout)
        self._transport.write(request)
        return over

    @property
    def is_reusable(self) -> bool:
        return self._is_clean and not self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's own name
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        if reader.over is None:
            self._is_clean = False
            self.abort()  # unexpected data: the next reply could not be matched to a request
            return
        self.last_byte = self._loop.time()
        if reader.feed(self._buffer[:nbytes]):
            self._is_clean = reader.allows_another and not self._transport.get_write_buffer_size()
            self._end_watch_for_stall()
            self._stream = None
        elif reader.reads_error:
            self._shorten_deadline(_ERROR_BODY_SECONDS)
        elif self._stream is not None and self._stream.is_done():
            self._shorten_deadline(_END_OF_STREAM_SECONDS)

    def eof_received(self) -> None:
        self._is_clean = False

    def connection_lost(self, error: Exception | None) -> None:
        self._is_clean = False
        if self._alarm is not None:
            self._alarm.cancel()
        self._end_watch_for_stall()
        self._reader.lose(error)

    def _set_alarm(self) -> None:
        """Start the timer. One timer for all requests of the connection is cheaper than one each."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._expires, self._on_alarm)

    def _shorten_deadline(self, seconds: float) -> None:
        """Shorten the deadline to so many seconds from now."""
        latest = self._loop.time() + seconds
        if latest < self._expires:
            self._expires = latest
            self._set_alarm()

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._reader.over is None:
            return
        if self._loop.time() >= self._expires:
            self._reader.expire()
        else:
            self._set_alarm()

    def _watch_for_stall(self, seconds: float) -> None:
        """End a stream that has sent nothing for so long. Before the body begins, the request may be queued."""
        now = self._loop.time()
        until = (self.last_byte if self._reader.body_begun else now) + seconds
        if until <= now:
            self._reader.stall(seconds)
        else:
            self._stall_alarm = self._loop.call_at(until, self._watch_for_stall, seconds)

    def _end_watch_for_stall(self) -> None:
        if self._stall_alarm is not None:
            self._stall_alarm.cancel()
            self._stall_alarm = None


def _encode_fields(fields: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items())
