"""One server's address, and single attempts at it: nothing here tries twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec
import yarl

from assay.models.addresses import Addresses
from assay.models.http1 import HTTP1
from assay.models.proxies import proxy_for
from assay.models.rate_limit import seconds_until_allowed
from assay.models.request_shape import shape_of
from assay.models.retry import DOWN_STATUSES, Fault, NetworkError, Retryability, reply_fault, status_fault
from assay.models.streams import StreamReader
from assay.models.tls import context_for
from assay.models.transport import LARGEST_REPLY, HTTPReply, Stream
from assay.models.unasked_streams import whole_reply
from assay.models.wire import ReplyError
from assay.types import FailureCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.models.headers import RequestHeaders
    from assay.models.wire import ParsedReply
    from assay.types import ModelSpec

T = TypeVar("T")

_STREAM = b', "stream": true}'
_STREAM_WITH_USAGE = b', "stream": true, "stream_options": {"include_usage": true}}'
_LIMITS = b"x-ratelimit-remaining"
_LOOK_TIMEOUT = 5.0
_LOOK_LASTS = 1.0


class Endpoint:
    """Where one server is asked, between :meth:`open` and :meth:`close`.

    Args:
        base_url: the server's.
        spec: which of its text endpoints, and how long a reply may take.
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
        self._tells_limits: bool | None = None
        """Whether good replies say what is still allowed; None until one has come."""
        self.used_up_for: float | None = None
        """Seconds for which the last good reply said that nothing more is allowed."""
        self._clock = clock
        self._looking = asyncio.Lock()
        self._looked = float("-inf")
        self._seen_alive = False
        self._proxy = proxy_for(self._url)
        self._context = context_for(spec.tls, self._url, self._proxy)
        self._client: HTTP1 | None = None

    @property
    def open_proxy(self) -> str | None:
        """The proxy that reads what is sent, for want of TLS; None if there is none."""
        if self._proxy is None or self._url.scheme == "https":
            return None
        return f"{self._proxy.host_subcomponent}:{self._proxy.port}"

    @property
    def _asked(self) -> str:
        """Where answers are asked for, fit to be shown."""
        proxy = f" (through the proxy {self.open_proxy})" if self.open_proxy else ""
        return f"{self._addresses.tried(self._endpoint)}{proxy}"

    @property
    def url(self) -> str:
        """Where answers are asked for, as far as is known; fit to be written down."""
        return self._addresses.recorded(self._endpoint)

    def __repr__(self) -> str:
        return f"Endpoint({self.address!r})"

    def open(self) -> None:
        """Make ready to ask."""
        self._client = HTTP1(self._url, self._headers, self._proxy, self._context)

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def attempt(self, payload: bytes, read: Callable[[bytes], T]) -> T | Fault:
        """What `read` makes of the body of the reply, or why there is none.

        Args:
            payload: the request's body.
            read: raises :class:`assay.models.wire.ReplyError` for a body that is no answer.
        """
        try:
            reply = await self._post(payload)
        except NetworkError as error:
            return self._cleaned(error.fault)
        if (fault := self._fault_of(reply)) is not None:
            return fault
        try:
            return read(self.redact.in_body(whole_reply(reply.body or b"")))
        except ReplyError as error:
            return self._misread(error)

    async def attempt_stream(self, payload: bytes) -> ParsedReply | Fault:
        """The answer to a request that is asked for in parts, or why there is none.

        Token counts are asked for, too; a server that refuses that is asked again without, and remembered.

        Args:
            payload: the request's body, as it is when nothing is streamed.
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
                return self._cleaned(error.fault)
        else:
            if (fault := self._fault_of(reply)) is not None:
                return fault
        try:
            return self._without_key(reader.read(started))
        except ReplyError as error:
            return self._misread(error)

    def _post(self, body: bytes, stream: Stream | None = None) -> Awaitable[HTTPReply]:
        body = self._shape.applied(body)
        request, addresses = self._open_client().request, self._addresses
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
            return self._cleaned(fault)
        if reply.body is None:
            message = f"the reply is larger than {LARGEST_REPLY // 2**20} MiB"
            return Fault(FailureCause.MALFORMED_REPLY, message, Retryability.YES, reply.status)
        if self._tells_limits is None:
            self._tells_limits = any(name.lower().startswith(_LIMITS) for name, _ in reply.fields)
        if self._tells_limits:
            self.used_up_for = seconds_until_allowed(reply.headers)
        return None

    def _misread(self, error: ReplyError) -> Fault:
        return self._cleaned(reply_fault(error, self._asked))

    async def get(self, path: str, timeout: float = _LOOK_TIMEOUT) -> tuple[int, bytes]:
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
        """The reply to a GET, which is sent again where the connection closed: maybe it had before, and nobody said."""
        request = self._open_client().request
        try:
            return await request("GET", url, timeout=timeout)
        except NetworkError as error:
            if error.fault.cause is not FailureCause.RESET:
                raise
        return await request("GET", url, timeout=timeout)

    async def is_down(self, fault: Fault) -> bool:
        """Whether an attempt failed because the whole server is down; where the fault leaves it open, a look tells."""
        if fault.retryability is not Retryability.UNSURE:
            return fault.retryability is Retryability.SERVER_DOWN
        async with self._looking:
            # Many requests fail together when a server goes: one look is enough for all.
            if self._clock() - self._looked >= _LOOK_LASTS:
                self._seen_alive = await self.looks_alive()
                self._looked = self._clock()
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

    def _cleaned(self, fault: Fault) -> Fault:
        return msgspec.structs.replace(fault, message=self.redact(fault.message))
