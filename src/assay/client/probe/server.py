"""The probe's client: limited in time, and every outcome is data."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec
import yarl

from assay.client.addresses import Addresses
from assay.client.headers import request_headers
from assay.client.http1 import HTTP1
from assay.client.probe.report import Observation, no, unknown
from assay.client.proxies import proxy_for
from assay.client.replies import ParsedReply, ReplyError, read_reply
from assay.client.request_shape import shape_of
from assay.client.retry import Fault, NetworkError, Retryability, status_fault
from assay.client.tls import context_for
from assay.client.transport import Stream
from assay.client.unasked_streams import whole_reply
from assay.types import EndpointKind, Failure, FailureCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType
    from typing import TypeVar

    from assay.client.transport import HTTPReply as Raw
    from assay.types import ModelSpec

    _Send = Callable[[float], Awaitable[Raw]]
    """Makes an exchange within so many seconds."""
    T = TypeVar("T")

PROMPT = "Write a long story about a river. Once upon a time, there was a river"
"""Any model continues this with more than a few words, in chat and as plain text."""
TOKENS = 16
"""``max_tokens``, unless a request needs another number."""
SEED = 1234

_TELLS_NOTHING = frozenset({401, 403, 407, 408, 425, 429, 502, 503, 504})
"""Statuses that do not show whether the server supports what was asked."""
_EVIDENCE = 160


class ProbeReply(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one request."""

    status: int = 0
    """The HTTP status; 0 if no reply came."""
    body: bytes = b""
    headers: dict[str, str] = {}
    """Names in lower case."""
    fault: str = ""
    """What went wrong, without secrets; empty if nothing did."""
    cause: FailureCause | None = None
    parsed: ParsedReply | None = None
    """The answer, if the request asked for one and succeeded."""

    @property
    def json(self) -> Any:
        """The decoded body; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def at(self, *path: str | int) -> Any:
        """The body's value at a path of keys and indices; None if there is none."""
        return at(self.json, *path)


def at(value: Any, *path: str | int) -> Any:
    """The value at a path of keys and indices in a JSON value; None if there is none."""
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def text_of(parsed: ParsedReply | None) -> str:
    """All generated text: the reasoning, then the content."""
    return "" if parsed is None else (parsed.reasoning or "") + (parsed.text or "")


def refused(reply: ProbeReply) -> Observation:
    """The observation from a request without an answer."""
    if reply.status in _TELLS_NOTHING or not reply.status or 200 <= reply.status < 400:
        return unknown(reply.fault)
    return no(reply.fault)


class ServerUnderProbe:
    """One server and model; use as ``async with ServerUnderProbe(…) as server``.

    Args:
        spec: which server and model, and how to reach it.
        api_key: sent as bearer token; shown nowhere.
        request_timeout: seconds for one exchange.
        seconds: time limit after which nothing more is sent.

    Raises:
        SpecificationError: the base URL is no URL, the key cannot be sent in a header, or TLS cannot be set up.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        api_key: str | None,
        request_timeout: float = 60.0,
        seconds: float = 120.0,
    ) -> None:
        self.addresses = Addresses(spec.base_url)
        self.address = self.addresses.root
        self.model = spec.model
        self.requests = 0
        self.reference: dict[EndpointKind, ParsedReply] = {}
        """Each working endpoint's answer to ``PROMPT`` at temperature 0, in ``TOKENS`` tokens."""
        self.refusals: dict[EndpointKind | Literal["models"], Fault] = {}
        """Each endpoint's last fault."""
        self.token_ids: list[int] | None = None
        """``PROMPT``'s, where the server tells them."""
        self.max_length: int | None = None
        headers = request_headers(spec, api_key, is_probe=True)
        self._redact = headers.redact
        self._shape = shape_of(spec)
        self._request_timeout = request_timeout
        self._deadline = time.monotonic() + seconds
        url = self.addresses["chat"]
        proxy = proxy_for(url)
        self._client = HTTP1(url, headers.fields, proxy, context_for(spec.tls, url, proxy))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    @property
    def endpoint(self) -> EndpointKind | None:
        """The endpoint for questions that concern both: chat if it works, else completions; None if neither does."""
        return next((kind for kind in ("chat", "completions") if kind in self.reference), None)

    def clean(self, text: str) -> str:
        """The text on one line, truncated, without the key."""
        line = self._redact(text)
        return line if len(line) <= _EVIDENCE else line[: _EVIDENCE - 1] + "…"

    def time_left(self) -> float:
        """Seconds that are left for the next exchange."""
        return min(self._request_timeout, self._deadline - time.monotonic())

    async def get(self, path: str) -> ProbeReply:
        """GET a path relative to the server's root."""
        url = yarl.URL(self.address + path)
        return await self._exchange(lambda timeout: self._client.request("GET", url, timeout=timeout))

    async def list_models(self) -> ProbeReply:
        """Ask which models there are."""
        return await self._exchange(
            lambda timeout: self.addresses.ask("models", lambda url: self._client.request("GET", url, timeout=timeout)),
            "models",
        )

    async def post(self, path: str, **body: Any) -> ProbeReply:
        """POST JSON to a path relative to the server's root."""
        url, payload = yarl.URL(self.address + path), _encode(body)
        return await self._exchange(lambda timeout: self._client.request("POST", url, payload, timeout=timeout))

    def body(self, kind: EndpointKind, prompt: Any, **body: Any) -> dict[str, Any]:
        """The body of a short request at temperature 0; `body` adds and replaces fields."""
        asked = {"messages": [{"role": "user", "content": prompt}]} if kind == "chat" else {"prompt": prompt}
        return {"model": self.model, **asked, "temperature": 0, "max_tokens": TOKENS, "seed": SEED, **body}

    async def ask(self, kind: EndpointKind, prompt: Any = PROMPT, **body: Any) -> ProbeReply:
        """Ask for an answer, see :meth:`body`."""
        reply = await self._ask(kind, _encode(self.body(kind, prompt, **body)))
        return reply if reply.fault else self._answered(reply, kind)

    async def exchange(self, payload: bytes, read: Callable[[bytes], T]) -> T | Failure:
        """Ask completions; return what `read` parses, or the failure. See :mod:`assay.client.echo_probe`."""
        reply = await self._ask("completions", payload)
        if reply.fault:
            return Failure(cause=reply.cause or FailureCause.MALFORMED_REPLY, message=reply.fault)
        try:
            return read(whole_reply(reply.body))
        except ReplyError as error:
            return Failure(cause=error.cause, message=self.clean(str(error)))

    def _answered(self, reply: ProbeReply, kind: EndpointKind) -> ProbeReply:
        try:
            body = whole_reply(reply.body)
            return msgspec.structs.replace(reply, body=body, parsed=read_reply(body, kind))
        except ReplyError as error:
            fault = self.clean(f"HTTP 200, but {error}")
            self.refusals[kind] = Fault(error.cause, fault, Retryability.NO, 200)
            return msgspec.structs.replace(reply, fault=fault, cause=error.cause)

    async def _ask(self, kind: EndpointKind, payload: bytes) -> ProbeReply:
        return await self._exchange(self._asking(kind, payload), kind)

    def _asking(self, kind: EndpointKind, payload: bytes, stream: Stream | None = None) -> _Send:
        payload = self._shape.applied(payload)
        return lambda timeout: self.addresses.ask(
            kind, lambda url: self._client.request("POST", url, payload, timeout=timeout, stream=stream)
        )

    async def _exchange(self, send: _Send, kind: EndpointKind | Literal["models"] | None = None) -> ProbeReply:
        reply = await self._send(send, kind)
        # A server may close a kept connection just when it is used again; a second reset is its reply.
        return reply if reply.cause is not FailureCause.RESET else await self._send(send, kind)

    async def stream(self, kind: EndpointKind, feed: Callable[[bytes], bool], **body: Any) -> ProbeReply:
        """Ask for a streamed answer; `feed` gets its chunks, see :class:`assay.client.transport.Stream`."""
        stream = Stream(feed, self._request_timeout)
        payload = _encode(self.body(kind, PROMPT, **body))
        return await self._send(self._asking(kind, payload, stream), kind)

    async def _send(self, send: _Send, kind: EndpointKind | Literal["models"] | None = None) -> ProbeReply:
        timeout = self.time_left()
        if timeout <= 0:
            return ProbeReply(fault="no time was left to ask", cause=FailureCause.TIMED_OUT)
        self.requests += 1
        try:
            raw = await send(timeout)
        except NetworkError as error:
            return self._failed(error.fault.message, error.fault.cause)
        headers = _plain(raw.headers)
        if not raw.is_good:
            asked = self.addresses.tried(kind) if kind else ""
            fault = status_fault(raw.status, raw.body or b"", raw.headers, asked)
            if kind:
                self.refusals[kind] = msgspec.structs.replace(fault, message=self.clean(fault.message))
            return ProbeReply(
                status=raw.status,
                body=self._redact.in_body(raw.body or b""),
                headers=headers,
                fault=self.clean(fault.message),
                cause=fault.cause,
            )
        if raw.body is None:
            message = "the reply is too large"
            return ProbeReply(status=raw.status, headers=headers, fault=message, cause=FailureCause.MALFORMED_REPLY)
        return ProbeReply(status=raw.status, body=self._redact.in_body(raw.body), headers=headers)

    def _failed(self, message: str, cause: FailureCause) -> ProbeReply:
        return ProbeReply(fault=self.clean(message), cause=cause)


def _encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode("ascii")


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
