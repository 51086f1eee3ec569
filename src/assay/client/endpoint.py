"""Single attempts at one server's endpoint. Retries are made elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec
import yarl

from assay.client.addresses import Addresses
from assay.client.http1 import HTTP1
from assay.client.native_endpoints import native_path
from assay.client.proxies import proxy_for
from assay.client.rate_limit import seconds_until_allowed
from assay.client.replies import ReplyError
from assay.client.request_shape import shape_of
from assay.client.retry import DOWN_STATUSES, Fault, NetworkError, Retryability, reply_fault, status_fault
from assay.client.streamed_answers import StreamReader
from assay.client.tls import context_for
from assay.client.transport import LARGEST_REPLY, HTTPReply, Stream
from assay.client.unasked_streams import whole_reply
from assay.types import FailureCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.client.headers import RequestHeaders
    from assay.client.replies import ParsedReply
    from assay.types import ModelSpec

T = TypeVar("T")

_STREAM = b', "stream": true}'
_STREAM_WITH_USAGE = b', "stream": true, "stream_options": {"include_usage": true}}'
_LIMITS = b"x-ratelimit-remaining"
_CHECK_TIMEOUT = 5.0
_CHECK_LASTS = 1.0


class Endpoint:
    """One server's endpoint. Usable between :meth:`open` and :meth:`close`.

    Args:
        base_url: the server's base URL.
        spec: chooses chat or completions, and the time-outs.
        headers: sent with every request.
        clock: a monotonic clock in seconds.

    Raises:
        SpecificationError: the base URL is no URL, or TLS cannot be set up.
    """

    def __init__(
        self,
        base_url: str,
        spec: ModelSpec,
        *,
        headers: RequestHeaders,
        clock: Callable[[], float],
    ) -> None:
        self._addresses = Addresses(base_url)
        self.address = self._addresses.root
        """The server's root, for messages."""
        self.redact = headers.redact
        self._url = self._addresses[spec.endpoint]
        self._endpoint = spec.endpoint
        self._timeout = spec.request_timeout
        self._stall_timeout = spec.stall_timeout
        self._streams_usage: bool | None = None
        """Whether the server takes ``stream_options``; None until that is seen."""
        self._headers = headers.fields
        self._shape = shape_of(spec)
        self._sends_limits: bool | None = None
        """Whether good replies have rate limit headers; None until one has come."""
        self.used_up_for: float | None = None
        """Seconds until the server allows more requests, by the last good reply's headers; None if it does now."""
        self._clock = clock
        self._checking = asyncio.Lock()
        self._checked_at = float("-inf")
        self._seen_alive = False
        self._proxy = proxy_for(self._url)
        self._context = context_for(spec.tls, self._url, self._proxy)
        self._client: HTTP1 | None = None

    @property
    def open_proxy(self) -> str | None:
        """The proxy that can read requests because they are not encrypted; None if there is none."""
        if self._proxy is None or self._url.scheme == "https":
            return None
        return f"{self._proxy.host_subcomponent}:{self._proxy.port}"

    @property
    def _asked(self) -> str:
        """The addresses that requests go to, without secrets."""
        proxy = f" (through the proxy {self.open_proxy})" if self.open_proxy else ""
        return f"{self._addresses.tried(self._endpoint)}{proxy}"

    @property
    def url(self) -> str:
        """The address that requests go to, without secrets."""
        return self._addresses.recorded(self._endpoint)

    def __repr__(self) -> str:
        return f"Endpoint({self.address!r})"

    def open(self) -> None:
        """Create the HTTP client."""
        self._client = HTTP1(self._url, self._headers, self._proxy, self._context)

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def attempt(self, payload: bytes, read: Callable[[bytes], T]) -> T | Fault:
        """Send a request, and return its reply as `read` parses it, or the fault.

        Args:
            payload: the request's body.
            read: parses a reply's body; raises :class:`assay.client.replies.ReplyError` if it is not an answer.
        """
        try:
            reply = await self._post(payload)
        except NetworkError as error:
            return self._redacted(error.fault)
        if (fault := self._fault_of(reply)) is not None:
            return fault
        try:
            return read(self.redact.in_body(whole_reply(reply.body or b"")))
        except ReplyError as error:
            return self._reply_fault(error)

    async def attempt_stream(self, payload: bytes) -> ParsedReply | Fault:
        """Send a request for a streamed answer, and return the answer, or the fault.

        The request also asks for token counts. If the server refuses that, they are left out from then on.

        Args:
            payload: the request's body without the fields for streaming.
        """
        result = await self._attempt_stream(payload, with_usage=self._streams_usage is not False)
        if not isinstance(result, Fault):
            self._streams_usage = self._streams_usage is not False
            return result
        if self._streams_usage is not None or result.cause is not FailureCause.BAD_REQUEST:
            return result
        result = await self._attempt_stream(payload, with_usage=False)
        if not isinstance(result, Fault):
            self._streams_usage = False
        return result

    async def _attempt_stream(self, payload: bytes, *, with_usage: bool) -> ParsedReply | Fault:
        body = payload.removesuffix(b"}") + (_STREAM_WITH_USAGE if with_usage else _STREAM)
        reader = StreamReader(self._endpoint, self._clock)
        stream = Stream(reader.feed, self._stall_timeout, reader.is_done)
        started = self._clock()
        try:
            reply = await self._post(body, stream)
        except NetworkError as error:
            if not reader.is_complete:
                return self._redacted(error.fault)
        else:
            if (fault := self._fault_of(reply)) is not None:
                return fault
        try:
            return self._without_key(reader.read(started))
        except ReplyError as error:
            return self._reply_fault(error)

    def _post(self, body: bytes, stream: Stream | None = None) -> Awaitable[HTTPReply]:
        request, addresses = self._open_client().request, self._addresses
        if (path := native_path(body)) is not None:
            return request("POST", yarl.URL(addresses.root + path), body, timeout=self._timeout)
        body = self._shape.applied(body)
        if addresses.is_settled:
            return request("POST", addresses[self._endpoint], body, timeout=self._timeout, stream=stream)
        return addresses.ask(
            self._endpoint, lambda url: request("POST", url, body, timeout=self._timeout, stream=stream)
        )

    def _fault_of(self, reply: HTTPReply) -> Fault | None:
        """What is wrong with a reply as HTTP."""
        if not reply.is_good:
            fault = status_fault(reply.status, reply.body or b"", reply.headers, self._asked)
            if self.open_proxy and reply.status in DOWN_STATUSES:  # It may be the proxy that says so.
                fault = msgspec.structs.replace(fault, message=f"{fault.message} (through the proxy {self.open_proxy})")
            return self._redacted(fault)
        if reply.body is None:
            message = f"the reply is larger than {LARGEST_REPLY // 2**20} MiB"
            return Fault(FailureCause.MALFORMED_REPLY, message, Retryability.YES, reply.status)
        if self._sends_limits is None:
            self._sends_limits = any(name.lower().startswith(_LIMITS) for name, _ in reply.fields)
        if self._sends_limits:
            self.used_up_for = seconds_until_allowed(reply.headers)
        return None

    def _reply_fault(self, error: ReplyError) -> Fault:
        return self._redacted(reply_fault(error, self._asked))

    async def get(self, path: str, timeout: float = _CHECK_TIMEOUT) -> tuple[int, bytes]:
        """Status and body of a GET.

        Args:
            path: ``/v1/models`` for the list of models, wherever the base URL says it is; else relative to the root.
            timeout: seconds for the whole exchange.

        Raises:
            NetworkError: no reply.
        """
        if path == "/v1/models":
            reply = await self._addresses.ask("models", lambda url: self._get(url, timeout))
        else:
            reply = await self._get(yarl.URL(self.address + path), timeout)
        return reply.status, self.redact.in_body(reply.body or b"")

    async def _get(self, url: yarl.URL, timeout: float) -> HTTPReply:
        """Send a GET, and send it again if the connection was reset: an idle connection may have been closed before."""
        request = self._open_client().request
        try:
            return await request("GET", url, timeout=timeout)
        except NetworkError as error:
            if error.fault.cause is not FailureCause.RESET:
                raise
        return await request("GET", url, timeout=timeout)

    async def is_down(self, fault: Fault) -> bool:
        """Whether the whole server is down. If the fault does not say, a health check decides."""
        if fault.retryability is not Retryability.UNSURE:
            return fault.retryability is Retryability.SERVER_DOWN
        async with self._checking:
            # When a server goes down, many requests fail together: one check is enough for all of them.
            if self._clock() - self._checked_at >= _CHECK_LASTS:
                self._seen_alive = await self.looks_alive()
                self._checked_at = self._clock()
            return not self._seen_alive

    async def looks_alive(self) -> bool:
        """Whether the server answers anything at all now.

        ``/health`` comes first because some servers list their models while they still load; where there is no
        ``/health``, the list of models must do.
        """
        for path in ("/health", "/v1/models"):
            try:
                status, _ = await self.get(path)
            except NetworkError:
                return False
            if status in DOWN_STATUSES:
                return False
            if status < 300:
                return True
        return True

    def _open_client(self) -> HTTP1:
        if self._client is None:
            raise RuntimeError("the endpoint is used before open() or after close()")
        return self._client

    def _without_key(self, parsed: ParsedReply) -> ParsedReply:
        blanked = self.redact.in_answer
        texts = {
            "text": parsed.text,
            "reasoning": parsed.reasoning,
            "finish_reason": parsed.finish_reason,
            "model": parsed.model,
        }
        return msgspec.structs.replace(parsed, **{name: blanked(text) for name, text in texts.items()})

    def _redacted(self, fault: Fault) -> Fault:
        return msgspec.structs.replace(fault, message=self.redact(fault.message))
