"""The ways in which the scripted server misbehaves."""

from __future__ import annotations

import asyncio
import copy
import gzip
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

from tests.servers.wire import Body, Received, Wire, events_of, reply_with


@dataclass(frozen=True)
class Fault:
    """A misbehaviour, and the requests it befalls: those that pass every condition that is given."""

    kind: str
    """A name in ``FAULT_KINDS``."""
    fraction: float = 1.0
    """Share of the bodies, picked by a hash of the body: the same ones in every run and at every attempt."""
    indices: frozenset[int] | None = None
    """Positions in order of first arrival of a body (0 is the first distinct body)."""
    first: int | None = None
    """Only the first so many requests with the same body (a fault that passes); None: all of them."""
    seconds: float = 0.0
    """Length of a hang or drip; ``Retry-After`` of http_429 and http_503."""
    probes_only: bool = False
    """Only requests that say they are a probe's."""
    text: str | None = None
    """Replaces the message in an error's body; the target of a redirect."""

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS:
            raise ValueError(f"no fault {self.kind!r}; there are {', '.join(sorted(FAULT_KINDS))}")

    def befalls(self, body_hash: bytes, index: int, earlier: int) -> bool:
        """Whether the request is hit: the hash of its body, that body's index, and how often it came before."""
        if self.first is not None and earlier >= self.first:
            return False
        if self.indices is not None and index not in self.indices:
            return False
        lot = hashlib.sha256(self.kind.encode() + body_hash).digest()
        return int.from_bytes(lot[:8], "big") < self.fraction * 2**64


def parse_fault(text: str) -> Fault:
    """A fault as given on the command line: ``kind[:fraction=F][:first=K][:seconds=S][:indices=0,3][:text=T]``."""
    kind, *options = text.split(":")
    given = dict(option.split("=", 1) for option in options)
    return Fault(
        kind,
        fraction=float(given.get("fraction", 1.0)),
        first=int(given["first"]) if "first" in given else None,
        seconds=float(given.get("seconds", 0.0)),
        indices=frozenset(int(i) for i in given["indices"].split(",")) if "indices" in given else None,
        text=given.get("text"),
    )


@dataclass(frozen=True)
class Case:
    """A request that a fault befalls."""

    fault: Fault
    request: Received
    reply: Body
    """What it would have been given."""
    wire: Wire

    @property
    def reply_bytes(self) -> bytes:
        return json.dumps(self.reply).encode()

    @property
    def is_chat(self) -> bool:
        return "messages" in self.request.body

    async def status(self, status: int, message: str, kind: str = "invalid_request_error", **headers: str) -> bool:
        return await self.wire.error(status, self.fault.text or message, kind, **headers)

    async def say_parts(self, *parts: Any) -> bool:
        """The good reply with these parts for its content, streamed if a stream is asked for."""
        reply = copy.deepcopy(self.reply)
        choice = reply["choices"][0]
        choice.get("message", choice)["content" if self.is_chat else "text"] = list(parts)
        body = self.request.body
        return await self.wire.stream(events_of(reply, body)) if body.get("stream") else await self.wire.json(reply)

    @property
    def text(self) -> str:
        choice = self.reply["choices"][0]
        return str(choice["message"]["content"] if self.is_chat else choice["text"])

    async def say(self, text: str | None, finish_reason: str = "stop", **message: Any) -> bool:
        body = self.request.body
        reply = reply_with(text, body, finish_reason, **message)
        return await self.wire.stream(events_of(reply, body)) if body.get("stream") else await self.wire.json(reply)

    @property
    def events(self) -> list[bytes]:
        """The good reply, streamed."""
        return events_of(self.reply, self.request.body)


FAULT_KINDS: dict[str, Callable[[Case], Awaitable[bool]]] = {}
STREAM_FAULTS: set[str] = set()
"""Those of ``FAULT_KINDS`` that befall streams alone."""


def _fault(function: Callable[[Case], Awaitable[bool]]) -> Callable[[Case], Awaitable[bool]]:
    FAULT_KINDS[function.__name__] = function
    return function


def _stream_fault(function: Callable[[Case], Awaitable[bool]]) -> Callable[[Case], Awaitable[bool]]:
    STREAM_FAULTS.add(function.__name__)
    return _fault(function)


@_fault
async def http_400(case: Case) -> bool:
    return await case.status(400, "stop must have at most 4 elements")


@_fault
async def http_400_context(case: Case) -> bool:
    """vLLM's wording."""
    message = "This model's maximum context length is 64 tokens. However, you requested 90 tokens in the messages."
    return await case.status(400, message, "BadRequestError")


@_fault
async def http_401(case: Case) -> bool:
    return await case.status(401, "Incorrect API key provided", "invalid_api_key")


@_fault
async def http_401_echo(case: Case) -> bool:
    """A careless server that repeats the key."""
    return await case.status(401, f"bad credentials: {case.request.headers.get('authorization')}")


@_fault
async def http_403(case: Case) -> bool:
    return await case.status(403, "not allowed")


@_fault
async def http_404(case: Case) -> bool:
    return await case.status(404, "The model does not exist.", "NotFoundError")


@_fault
async def http_408(case: Case) -> bool:
    return await case.status(408, "too slow")


@_fault
async def http_422(case: Case) -> bool:
    return await case.wire.json({"detail": [{"loc": ["body", "seed"], "msg": "unexpected field"}]}, 422)


@_fault
async def http_429(case: Case) -> bool:
    """Too many requests; with ``Retry-After`` in seconds if the fault has ``seconds``."""
    headers = {"retry_after": f"{case.fault.seconds:g}"} if case.fault.seconds else {}
    return await case.status(429, "Rate limit reached", "rate_limit_error", **headers)


@_fault
async def http_429_date(case: Case) -> bool:
    """Too many requests; ``Retry-After`` as a date ``seconds`` after the server's own, which is a day behind."""
    now = time.time() - 86400
    dates = {"date": formatdate(now, usegmt=True), "retry_after": formatdate(now + case.fault.seconds, usegmt=True)}
    return await case.status(429, "Rate limit reached", "rate_limit_error", **dates)


@_fault
async def http_500(case: Case) -> bool:
    return await case.status(500, "EngineCore encountered an issue", "InternalServerError")


@_fault
async def http_502(case: Case) -> bool:
    return await case.wire.send(b"<html><h1>502 Bad Gateway</h1></html>", 502, content_type="text/html")


@_fault
async def http_503(case: Case) -> bool:
    """Loading, as llama.cpp says it."""
    headers = {"retry_after": f"{case.fault.seconds:g}"} if case.fault.seconds else {}
    return await case.status(503, "Loading model", "unavailable_error", **headers)


@_fault
async def reset(case: Case) -> bool:
    """The connection is reset before any byte of a reply."""
    raise ConnectionResetError


@_fault
async def close_before_reply(case: Case) -> bool:
    """The connection ends in order, but before any byte of a reply."""
    return False


@_fault
async def close_mid_body(case: Case) -> bool:
    body = case.reply_bytes
    case.wire.write_head(content_length=str(len(body)))
    case.wire.writer.write(body[: len(body) // 2])
    await case.wire.writer.drain()
    return False


@_fault
async def hang(case: Case) -> bool:
    """Nothing for ``seconds``, then the good reply."""
    await asyncio.sleep(case.fault.seconds)
    return await case.wire.json(case.reply)


@_fault
async def hang_mid_body(case: Case) -> bool:
    body = case.reply_bytes
    case.wire.write_head(content_length=str(len(body)))
    case.wire.writer.write(body[: len(body) // 2])
    await asyncio.sleep(case.fault.seconds)
    case.wire.writer.write(body[len(body) // 2 :])
    await case.wire.writer.drain()
    return True


@_fault
async def drip(case: Case) -> bool:
    """The good reply, one twentieth at a time, over ``seconds``."""
    body = case.reply_bytes
    case.wire.write_head(content_length=str(len(body)))
    step = len(body) // 20 + 1
    for start in range(0, len(body), step):
        case.wire.writer.write(body[start : start + step])
        await case.wire.writer.drain()
        await asyncio.sleep(case.fault.seconds / 20)
    return True


@_fault
async def malformed_json(case: Case) -> bool:
    return await case.wire.send(case.reply_bytes[:-3])


@_fault
async def html(case: Case) -> bool:
    return await case.wire.send(b"<!doctype html><title>Log in</title>", content_type="text/html")


@_fault
async def wrong_content_type(case: Case) -> bool:
    """Harmless: the good reply, called plain text."""
    return await case.wire.send(case.reply_bytes, content_type="text/plain; charset=utf-8")


@_fault
async def content_length_too_long(case: Case) -> bool:
    body = case.reply_bytes
    await case.wire.send(body, content_length=str(len(body) + 100))
    return False


@_fault
async def content_length_too_short(case: Case) -> bool:
    body = case.reply_bytes
    await case.wire.send(body, content_length=str(len(body) - 20))
    return False


@_fault
async def not_http(case: Case) -> bool:
    case.wire.writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    await case.wire.writer.drain()
    return False


@_fault
async def empty_choices(case: Case) -> bool:
    return await case.wire.json({**case.reply, "choices": []})


@_fault
async def error_in_reply(case: Case) -> bool:
    return await case.wire.json({"error": {"message": case.fault.text or "CUDA out of memory", "code": 500}})


@_fault
async def no_message(case: Case) -> bool:
    """A choice without ``message`` (or ``text``)."""
    return await case.wire.json({**case.reply, "choices": [{"index": 0, "finish_reason": "stop"}]})


@_fault
async def aborted(case: Case) -> bool:
    """The server broke off, as SGLang says when it shuts down."""
    return await case.say("The answer", "abort")


@_fault
async def null_content(case: Case) -> bool:
    return await case.say(None)


@_fault
async def null_content_with_reasoning(case: Case) -> bool:
    return await case.say(None, "length", reasoning_content="Let me think.")


@_fault
async def tool_call(case: Case) -> bool:
    call = {"id": "call-1", "type": "function", "function": {"name": "calculator", "arguments": "{}"}}
    return await case.say(None, "tool_calls", tool_calls=[call])


@_fault
async def empty_content(case: Case) -> bool:
    return await case.say("")


@_fault
async def content_in_parts(case: Case) -> bool:
    """Harmless: reasoning and text as a list of parts, as Mistral sends them, and gateways."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Let me think."}]}
    texts = [{"type": "text", "text": text} for text in (case.text[:5], case.text[5:])]
    return await case.say_parts(thinking, *texts)


@_fault
async def unreadable_content(case: Case) -> bool:
    """A part of a kind that nobody knows."""
    return await case.say_parts({"type": "text", "text": case.text}, {"type": "hologram", "data": "…"})


@_fault
async def unasked_stream(case: Case) -> bool:
    """Harmless: the good reply as a stream, whatever was asked for."""
    return await case.wire.stream(case.events)


@_fault
async def truncated(case: Case) -> bool:
    """The answer hit the token limit."""
    return await case.say("The answer is", "length")


@_fault
async def gzip_bomb(case: Case) -> bool:
    """256 MiB in a quarter of one."""
    return await case.wire.send(_bomb(), content_encoding="gzip")


_bombs: list[bytes] = []


def _bomb() -> bytes:
    if not _bombs:
        _bombs.append(gzip.compress(b'{"choices": [' + b" " * 2**28, compresslevel=1))
    return _bombs[0]


@_fault
async def broken_gzip(case: Case) -> bool:
    """A reply said to be compressed, and not."""
    return await case.wire.send(case.reply_bytes, content_encoding="gzip")


@_fault
async def endless(case: Case) -> bool:
    """A body without length that never ends, as fast as the client reads it."""
    case.wire.write_head(transfer_encoding="chunked")
    chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    while True:
        case.wire.writer.write(chunk)
        await case.wire.writer.drain()


@_fault
async def large_reply(case: Case) -> bool:
    """Harmless: 50 MB of fields that nobody reads."""
    return await case.wire.json({"padding": "x" * 50_000_000, **case.reply})


@_fault
async def redirect(case: Case) -> bool:
    """To ``text``, with 307, which keeps method, body and headers where it is followed."""
    location = case.fault.text or "http://127.0.0.1:9/v1/chat/completions"
    return await case.wire.send(b"", 307, location=location)


@_fault
async def close_when_idle(case: Case) -> bool:
    """The good reply; then the connection, announced as kept alive, is closed."""
    await case.wire.json(case.reply)
    return False


@_stream_fault
async def stream_cut(case: Case) -> bool:
    """Half of the events; then the body ends as if it were whole."""
    return await case.wire.stream(case.events[: len(case.events) // 2])


@_stream_fault
async def stream_reset(case: Case) -> bool:
    await case.wire.stream(case.events[: len(case.events) // 2], ends=False)
    await asyncio.sleep(0.02)
    raise ConnectionResetError


@_stream_fault
async def stream_error(case: Case) -> bool:
    """Half of the events, then one that tells of an error, and ``[DONE]``, as vLLM does it."""
    error = json.dumps(
        {"error": {"message": case.fault.text or "EngineCore encountered an issue", "code": 500}}
    ).encode()
    half = case.events[: len(case.events) // 2]
    return await case.wire.stream([*half, b"data: %b\n\n" % error, b"data: [DONE]\n\n"])


@_stream_fault
async def stream_garbage(case: Case) -> bool:
    return await case.wire.stream([*case.events[:2], b"data: {broken\n\n", *case.events[2:]])


@_stream_fault
async def stream_stall(case: Case) -> bool:
    """Half of the events, nothing for ``seconds``, then the rest."""
    half = len(case.events) // 2
    await case.wire.stream(case.events[:half], ends=False)
    await asyncio.sleep(case.fault.seconds)
    for event in case.events[half:]:
        case.wire.writer.write(b"%x\r\n%b\r\n" % (len(event), event))
    case.wire.writer.write(b"0\r\n\r\n")
    await case.wire.writer.drain()
    return True


@_stream_fault
async def stream_of_nothing(case: Case) -> bool:
    return await case.wire.stream([b": no choice\n\n", b"data: [DONE]\n\n"])


@_stream_fault
async def stream_options_refused(case: Case) -> bool:
    if "stream_options" in case.request.body:
        return await case.status(400, "unknown field stream_options")
    return await case.wire.stream(case.events)


@_stream_fault
async def stream_ignored(case: Case) -> bool:
    """The whole reply at once, though a stream was asked for."""
    return await case.wire.json(case.reply)


@_stream_fault
async def stream_without_done(case: Case) -> bool:
    """Harmless: as transformers serve."""
    return await case.wire.stream(case.events[:-1])


@_stream_fault
async def stream_with_comments(case: Case) -> bool:
    """Harmless: comments between the events, names and ids for them, and carriage returns."""
    events = [b": ping\r\n\r\nevent: message\r\nid: 1\r\n" + event.replace(b"\n", b"\r\n") for event in case.events]
    return await case.wire.stream(events)


@_stream_fault
async def stream_reset_when_done(case: Case) -> bool:
    """Harmless: everything was said."""
    await case.wire.stream(case.events, ends=False)
    await asyncio.sleep(0.02)
    raise ConnectionResetError


@_stream_fault
async def stream_hangs_when_done(case: Case) -> bool:
    """Harmless, for the same reason."""
    await case.wire.stream(case.events, ends=False)
    await asyncio.sleep(case.fault.seconds)
    return False
