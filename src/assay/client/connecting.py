"""Opens connections to a server: name resolution, proxies, TLS.

aiohappyeyeballs connects, asyncio does TLS. Through a proxy, requests to a plain HTTP server are sent to the proxy;
those to an HTTPS server go through a tunnel, so that the proxy sees neither key nor prompt.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any, TypeVar

from aiohappyeyeballs import start_connection

from assay.client.retry import Fault, NetworkError, Retryability, os_reason, proxy_fault
from assay.client.tls_faults import handshake_fault, no_tls_fault
from assay.client.transport import is_success
from assay.types import FailureCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import yarl

CONNECT_TIMEOUT = 30.0
"""Seconds for the whole of it."""
HANDSHAKE_TIMEOUT = 20.0
"""Seconds of these for the TLS handshake; shorter, so that the error can name it."""
_CHECK_HANDSHAKE_AFTER = 2.0
"""Seconds after which to check whether the server speaks plain HTTP."""
_CHECK_TIMEOUT = 5.0
"""Seconds for checking which protocol a server speaks."""
_ADDRESSES_LAST = 10.0
_SECOND_FAMILY_AFTER = 0.25
_LARGEST_HEAD = 2**16
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]*))?\r?\n")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


C = TypeVar("C", bound=asyncio.BaseProtocol)


class Connector:
    """Opens connections to one server.

    Args:
        url: the server's address.
        proxy: the proxy to use, if any.
        context: for TLS with the server and with the proxy; needed if either uses it.
    """

    def __init__(self, url: yarl.URL, proxy: yarl.URL | None, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._proxy = proxy
        self._context = context
        self._addresses: list[Any] = []
        self._addresses_until = 0.0
        self._resolving = asyncio.Lock()
        self._spoke_tls = False
        """Whether a TLS handshake with the server has ever succeeded."""

    async def connect(self, make: Callable[[], C]) -> C:
        """Open a connection to the server, with the protocol that `make` returns.

        Raises:
            NetworkError: no connection could be opened.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await self._connect(make)
        except NetworkError:
            raise
        except TimeoutError:
            raise self._no_connection(" in time") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: the proxy's name is not a valid host name
            raise self._no_connection(f": {os_reason(error)}") from error

    async def speaks_tls(self) -> bool:
        """Whether the server of an ``http`` address speaks TLS, with whatever certificate."""
        if self._url.scheme != "http" or self._proxy is not None:
            return False
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return await self._check(lambda bare: _begins_tls(bare, context))

    async def _speaks_plain_http(self) -> bool:
        """Whether the server of an ``https`` address speaks plain HTTP, other than to ask for TLS."""
        return await self._check(lambda bare: _answers_plainly(bare, self._url))

    async def _check(self, check: Callable[[asyncio.Transport], Awaitable[bool]]) -> bool:
        """Run a check over a new connection; False if it cannot be opened."""
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT):
                bare = await self._open(asyncio.Protocol)
                try:
                    return await check(await self._reach_server(bare))
                finally:
                    bare.abort()
        except (OSError, UnicodeError):
            return False

    def _no_connection(self, why: str) -> NetworkError:
        proxy = self._proxy
        to_proxy = "" if proxy is None else f" to the proxy {proxy.host_subcomponent}:{proxy.port}"
        message, down = f"no connection{to_proxy}{why}", Retryability.SERVER_DOWN
        return NetworkError(Fault(FailureCause.UNREACHABLE, message, down, is_at_proxy=proxy is not None))

    async def _connect(self, make: Callable[[], C]) -> C:
        if self._proxy is None and self._url.scheme == "http":
            connection: C = (await self._open(make)).get_protocol()  # type: ignore[assignment]
            return connection
        bare = await self._open(asyncio.Protocol)
        connection = make()
        try:
            transport = await self._reach_server(bare)
            if self._url.scheme == "https":
                transport = await self._encrypted(transport, self._url, connection)
            else:
                transport.set_protocol(connection)
            connection.connection_made(transport)
        except BaseException:
            bare.abort()
            raise
        return connection

    async def _open(self, make: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        """A TCP connection to the server or its proxy, before TLS and tunnel."""
        sock = await start_connection(
            await self._resolve(), happy_eyeballs_delay=_SECOND_FAMILY_AFTER, socket_factory=_watched_socket
        )
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(make, sock=sock)
        except BaseException:
            sock.close()
            raise
        return transport

    async def _reach_server(self, bare: asyncio.Transport) -> asyncio.Transport:
        """The transport to the server over a TCP connection: through TLS with the proxy and a tunnel, if needed."""
        transport = bare
        if self._proxy is not None:
            if self._proxy.scheme == "https":
                transport = await self._encrypted(transport, self._proxy)
            if self._url.scheme == "https":
                await _open_tunnel(transport, self._proxy, self._url)
        return transport

    async def _encrypted(
        self, transport: asyncio.Transport, peer: yarl.URL, protocol: asyncio.BaseProtocol | None = None
    ) -> asyncio.Transport:
        if self._context is None:
            raise RuntimeError(f"{peer} asks for TLS, for which there is no context")
        loop = asyncio.get_running_loop()
        is_in_doubt = peer is self._url and not self._spoke_tls
        looking = asyncio.create_task(self._end_if_plain(transport)) if is_in_doubt else None
        try:
            encrypted = await loop.start_tls(
                transport,
                protocol or asyncio.Protocol(),
                self._context,
                server_hostname=_looked_up(peer).partition("%")[0],
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
            )
        except (OSError, UnicodeError) as error:
            encrypted, reason = None, error
        else:
            reason = ConnectionResetError()
        finally:
            is_plain = looking is not None and looking.done() and looking.result()
            if looking is not None:
                looking.cancel()
        if encrypted is None:
            who = self._named(peer)
            raise NetworkError(no_tls_fault(who) if is_plain else handshake_fault(reason, who)) from reason
        self._spoke_tls = self._spoke_tls or peer is self._url
        return encrypted

    async def _end_if_plain(self, transport: asyncio.Transport) -> bool:
        """Fail a TLS handshake without an answer if the server turns out to speak plain HTTP.

        Servers that read a line of HTTP wait for the end of it, and say nothing to who speaks TLS.
        """
        await asyncio.sleep(_CHECK_HANDSHAKE_AFTER)
        is_plain = await self._speaks_plain_http()
        if is_plain:
            transport.abort()
        return is_plain

    def _named(self, peer: yarl.URL) -> str:
        return "the server" if peer is self._url else "the proxy"

    async def _resolve(self) -> list[Any]:
        """The IP addresses to connect to. Concurrent callers share one lookup."""
        loop = asyncio.get_running_loop()
        peer = self._proxy or self._url
        async with self._resolving:
            if loop.time() >= self._addresses_until:
                self._addresses = await loop.getaddrinfo(_looked_up(peer), peer.port, type=socket.SOCK_STREAM)
                self._addresses_until = loop.time() + _ADDRESSES_LAST
            return self._addresses


def _looked_up(peer: yarl.URL) -> str:
    """The host for the resolver, with the zone of an IPv6 address (``fe80::1%25eth0``) unquoted."""
    return (peer.raw_host or "").replace("%25", "%")


def proxy_authorization(proxy: yarl.URL) -> dict[str, str]:
    """The ``Proxy-Authorization`` header for the user in a proxy's address; empty without a user."""
    if proxy.user is None:
        return {}
    credentials = f"{proxy.user}:{proxy.password or ''}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(credentials).decode('ascii')}"}


async def _open_tunnel(transport: asyncio.Transport, proxy: yarl.URL, url: yarl.URL) -> None:
    """Open a tunnel through the proxy to the server of `url`."""
    target = f"{url.host_subcomponent}:{url.port}"
    fields = "".join(f"{name}: {value}\r\n" for name, value in {"Host": target, **proxy_authorization(proxy)}.items())
    status, reason = await _status_of(transport, f"CONNECT {target} HTTP/1.1\r\n{fields}\r\n", "the proxy")
    if not is_success(status):
        raise NetworkError(proxy_fault(status, reason))


async def _answers_plainly(transport: asyncio.Transport, url: yarl.URL) -> bool:
    target = f"{url.host_subcomponent}:{url.port}"
    request = f"GET /health HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"
    status, _ = await _status_of(transport, request, "the server")
    return status != 400  # "The plain HTTP request was sent to HTTPS port"


async def _begins_tls(transport: asyncio.Transport, context: ssl.SSLContext) -> bool:
    return await asyncio.get_running_loop().start_tls(transport, asyncio.Protocol(), context) is not None


async def _status_of(transport: asyncio.Transport, request: str, who: str) -> tuple[int, str]:
    """Send a request and return the status and reason of its reply. The connection is then free for other use.

    Raises:
        OSError: there is no reply of HTTP.
    """
    answer = _Status(asyncio.get_running_loop().create_future(), who)
    transport.set_protocol(answer)
    transport.write(request.encode("latin-1"))
    return await answer.is_there


class _Status(asyncio.Protocol):
    """Reads the head of a reply for its status."""

    def __init__(self, is_there: asyncio.Future[tuple[int, str]], who: str) -> None:
        self.is_there = is_there
        """Its status and the words after it."""
        self._who = who
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.is_there.done():
            return
        if _END_OF_HEAD.search(self._head):
            line = _STATUS_LINE.match(self._head)
            if line is None:
                self.is_there.set_exception(ConnectionAbortedError(f"{self._who} answers something else than HTTP"))
            else:
                self.is_there.set_result((int(line[1]), (line[2] or b"").decode("latin-1")))
        elif len(self._head) > _LARGEST_HEAD:
            self.is_there.set_exception(ConnectionAbortedError(f"the answer of {self._who} does not end"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.is_there.done():
            self.is_there.set_exception(error or ConnectionResetError(f"{self._who} closed the connection"))


def _watched_socket(address: Any) -> socket.socket:
    """A socket with TCP keep-alive, which notices within two minutes that the other machine is gone.

    Args:
        address: an entry of what ``getaddrinfo`` gives.
    """
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
