"""The transport for TLS and proxies: aiohttp."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Literal

import aiohttp

from assay.models.retry import NetworkError, network_fault
from assay.models.transport import (
    CONNECT_TIMEOUT,
    KEEPALIVE,
    LARGEST_ERROR_BODY,
    LARGEST_REPLY,
    Reply,
    watched_socket,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    import yarl

# aiohttp warns of longer bodies given as bytes.
_LARGEST_BYTES_BODY = 2**20


class AiohttpTransport:
    """See :class:`assay.models.transport.Transport`."""

    def __init__(self, headers: Mapping[str, str], context: ssl.SSLContext, proxy: yarl.URL | None = None) -> None:
        self._headers = headers
        self._context = context
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self, method: Literal["GET", "POST"], url: yarl.URL, body: bytes = b"", *, timeout: float
    ) -> Reply:
        """Send a request and read its reply."""
        data = None if method == "GET" else body if len(body) <= _LARGEST_BYTES_BODY else io.BytesIO(body)
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        try:
            async with self._open_session().request(
                method, url, data=data, timeout=limits, allow_redirects=False
            ) as reply:
                read = _read if 200 <= reply.status < 300 else _read_beginning
                return Reply(reply.status, reply.headers, await read(reply))
        except (aiohttp.ClientError, OSError) as error:
            raise NetworkError(network_fault(error)) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # The caller bounds how many requests are outstanding: none ever waits for a connection here, where its
                # time-out would run.
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=KEEPALIVE, socket_factory=watched_socket, ssl=self._context
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                proxy=self._proxy,
            )
        return self._session


async def _read(reply: aiohttp.ClientResponse) -> bytes | None:
    """The whole body, or None as soon as it is larger than allowed; the connection is then closed."""
    body = await reply.content.readany()
    if reply.content.at_eof():
        return body if len(body) <= LARGEST_REPLY else None
    parts = [body]
    size = len(body)
    while chunk := await reply.content.readany():
        parts.append(chunk)
        size += len(chunk)
        if size > LARGEST_REPLY:
            reply.close()
            return None
    return b"".join(parts)


async def _read_beginning(reply: aiohttp.ClientResponse) -> bytes:
    """The beginning of the body, as far as it comes."""
    body = b""
    try:
        while len(body) < LARGEST_ERROR_BODY and (chunk := await reply.content.readany()):
            body += chunk
    except (aiohttp.ClientError, OSError):
        pass
    if not reply.content.at_eof():
        reply.close()
    return body
