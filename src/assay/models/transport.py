"""How a request gets to a server and its reply back, behind one small interface.

Plain HTTP, which most runs speak, has a client of its own that costs a third of aiohttp's time; TLS and proxies are
aiohttp's.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol
from urllib.request import getproxies, proxy_bypass

import yarl

from assay.errors import SpecificationError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

LARGEST_REPLY = 64 * 2**20
"""Bytes, after decompression; a larger reply is a failure."""
LARGEST_ERROR_BODY = 2**16
"""Bytes read of the body of an error, of which only the beginning is of interest."""
CONNECT_TIMEOUT = 30.0
# Servers on uvicorn and llama.cpp close connections idle for 5 s; closing first avoids sending on one that just closed.
KEEPALIVE = 4.0


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """Case-insensitive."""
    body: bytes | None
    """None for the body of a 2xx that is larger than ``LARGEST_REPLY``; of other bodies the beginning, as it came."""


class Transport(Protocol):
    """A client of one server: keeps connections open, follows no redirect, sends each request once."""

    async def request(
        self, method: Literal["GET", "POST"], url: yarl.URL, body: bytes = b"", *, timeout: float
    ) -> Reply:
        """Send a request and read its reply.

        Args:
            method: of HTTP.
            url: on the server that the transport was made for.
            body: sent as it is.
            timeout: seconds for the exchange.

        Raises:
            OSError: no whole reply came; :func:`assay.models.retry.network_fault` says what that means.
        """

    async def close(self) -> None:
        """Close all connections."""


def open_transport(
    url: yarl.URL, headers: Mapping[str, str], proxy: yarl.URL | None, context: ssl.SSLContext
) -> Transport:
    """A transport to the server of `url`, through `proxy` if there is one, that sends `headers` with every request.

    Args:
        url: of the server.
        headers: sent with every request.
        proxy: see :func:`proxy_for`.
        context: for TLS, wherever the addresses ask for it.
    """
    if url.scheme == "http" and proxy is None:
        from assay.models.plain_http import PlainHTTP

        return PlainHTTP(url, headers)
    from assay.models.aiohttp_transport import AiohttpTransport

    return AiohttpTransport(headers, context, proxy)


def watched_socket(address: Any) -> socket.socket:
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


def proxy_for(url: yarl.URL) -> yarl.URL | None:
    """The proxy that the environment names for ``url``.

    Raises:
        SpecificationError: it is none.
    """
    address = None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
    if not address:
        return None
    proxy = yarl.URL(address if "://" in address else f"http://{address}")
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise SpecificationError(f"{url.scheme.upper()}_PROXY must be the address of an HTTP proxy")
    return proxy
