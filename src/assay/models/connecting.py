"""How a connection to a server comes about: addresses, proxies, TLS.

aiohappyeyeballs connects, asyncio speaks TLS. A server of plain HTTP behind a proxy is asked through the proxy; one of
HTTPS through a tunnel that the proxy opens, so that the proxy sees neither key nor prompt.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
from typing import TYPE_CHECKING, Any, TypeVar

from aiohappyeyeballs import start_connection

from assay.models.retry import Fault, NetworkError, Retryability, os_reason, proxy_fault
from assay.models.tls_faults import handshake_fault
from assay.models.transport import is_success
from assay.types import FailureCause

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    import yarl

CONNECT_TIMEOUT = 30.0
"""Seconds for all of it."""
HANDSHAKE_TIMEOUT = 20.0
"""Seconds of them for TLS, so that it can be told what did not come about."""
_ADDRESSES_LAST = 10.0
_SECOND_FAMILY_AFTER = 0.25
_LARGEST_HEAD = 2**16
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]*))?\r?\n")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


C = TypeVar("C", bound=asyncio.BaseProtocol)


class Connector:
    """Opens connections to one server.

    Args:
        url: of the server.
        proxy: through which it is reached, if any.
        context: for TLS, with the server and with the proxy; needed where an address asks for it.
    """

    def __init__(self, url: yarl.URL, proxy: yarl.URL | None, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._proxy = proxy
        self._context = context
        self._addresses: list[Any] = []
        self._addresses_until = 0.0
        self._resolving = asyncio.Lock()

    async def connect(self, make: Callable[[], C]) -> C:
        """A connection, made by `make`, to the server.

        Raises:
            NetworkError: there is none to be had.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await self._connect(make)
        except NetworkError:
            raise
        except TimeoutError:
            raise _unreachable(f"no connection{self._to_proxy} in time") from None
        except (OSError, UnicodeError) as error:  # the latter for a proxy's name that cannot be looked up
            raise _unreachable(f"no connection{self._to_proxy}: {os_reason(error)}") from error

    @property
    def _to_proxy(self) -> str:
        return "" if self._proxy is None else f" to the proxy {self._proxy.host_subcomponent}:{self._proxy.port}"

    async def _connect(self, make: Callable[[], C]) -> C:
        loop = asyncio.get_running_loop()
        sock = await start_connection(
            await self._resolve(), happy_eyeballs_delay=_SECOND_FAMILY_AFTER, socket_factory=_watched_socket
        )
        try:
            if self._proxy is None and self._url.scheme == "http":
                _, connection = await loop.create_connection(make, sock=sock)
                return connection
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
        except BaseException:
            sock.close()
            raise
        return await self._dressed(transport, make())

    async def _dressed(self, bare: asyncio.Transport, connection: C) -> C:
        """The connection over a bare one, with the layers between them: TLS with the proxy, a tunnel, TLS."""
        try:
            transport = bare
            if self._proxy is not None and self._proxy.scheme == "https":
                transport = await self._encrypted(transport, self._proxy)
            if self._url.scheme == "https":
                if self._proxy is not None:
                    await _open_tunnel(transport, self._proxy, self._url)
                transport = await self._encrypted(transport, self._url, connection)
            else:
                transport.set_protocol(connection)
            connection.connection_made(transport)
        except BaseException:
            bare.abort()
            raise
        return connection

    async def _encrypted(
        self, transport: asyncio.Transport, peer: yarl.URL, protocol: asyncio.BaseProtocol | None = None
    ) -> asyncio.Transport:
        if self._context is None:
            raise RuntimeError(f"{peer} asks for TLS, for which there is no context")
        loop = asyncio.get_running_loop()
        try:
            encrypted = await loop.start_tls(
                transport,
                protocol or asyncio.Protocol(),
                self._context,
                server_hostname=_looked_up(peer).partition("%")[0],
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
            )
        except (OSError, UnicodeError) as error:
            raise NetworkError(handshake_fault(error, self._named(peer))) from error
        if encrypted is None:
            raise NetworkError(handshake_fault(ConnectionResetError(), self._named(peer)))
        return encrypted

    def _named(self, peer: yarl.URL) -> str:
        return "the server" if peer is self._url else "the proxy"

    async def _resolve(self) -> list[Any]:
        """The addresses of whom to connect to, looked up by one request for all that connect at the time."""
        loop = asyncio.get_running_loop()
        peer = self._proxy or self._url
        async with self._resolving:
            if loop.time() >= self._addresses_until:
                self._addresses = await loop.getaddrinfo(_looked_up(peer), peer.port, type=socket.SOCK_STREAM)
                self._addresses_until = loop.time() + _ADDRESSES_LAST
            return self._addresses


def _looked_up(peer: yarl.URL) -> str:
    """The host as the resolver takes it: the zone of an address of IPv6 (``fe80::1%25eth0``) unquoted."""
    return (peer.raw_host or "").replace("%25", "%")


def proxy_authorization(proxy: yarl.URL) -> dict[str, str]:
    """The header by which the user of a proxy's address shows who they are; none without a user."""
    if proxy.user is None:
        return {}
    credentials = f"{proxy.user}:{proxy.password or ''}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(credentials).decode('ascii')}"}


async def _open_tunnel(transport: asyncio.Transport, proxy: yarl.URL, url: yarl.URL) -> None:
    """Have the proxy pass on, from now on, all that is sent to the server of `url`."""
    answer = _TunnelAnswer(asyncio.get_running_loop().create_future())
    transport.set_protocol(answer)
    target = f"{url.host_subcomponent}:{url.port}"
    fields = "".join(f"{name}: {value}\r\n" for name, value in {"Host": target, **proxy_authorization(proxy)}.items())
    transport.write(f"CONNECT {target} HTTP/1.1\r\n{fields}\r\n".encode("latin-1"))
    status, reason = await answer.is_there
    if not is_success(status):
        raise NetworkError(proxy_fault(status, reason))


class _TunnelAnswer(asyncio.Protocol):
    """What a proxy says when asked for a tunnel."""

    def __init__(self, is_there: asyncio.Future[tuple[int, str]]) -> None:
        self.is_there = is_there
        """Its status and the words after it."""
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.is_there.done():
            return
        if _END_OF_HEAD.search(self._head):
            line = _STATUS_LINE.match(self._head)
            if line is None:
                self.is_there.set_exception(ConnectionAbortedError("the proxy answers something else than HTTP"))
            else:
                self.is_there.set_result((int(line[1]), (line[2] or b"").decode("latin-1")))
        elif len(self._head) > _LARGEST_HEAD:
            self.is_there.set_exception(ConnectionAbortedError("the proxy's answer does not end"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.is_there.done():
            self.is_there.set_exception(error or ConnectionResetError("the proxy closed the connection"))


def _unreachable(message: str) -> NetworkError:
    return NetworkError(Fault(FailureCause.UNREACHABLE, message, Retryability.SERVER_DOWN))


def _watched_socket(address: Any) -> socket.socket:
    """A socket that notices within two minutes when the other machine has vanished without a word.

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
