"""An OpenAI-compatible server that answers from a script and misbehaves on demand.

In a test::

    with ScriptedServer(answer=lambda body: "42", faults=[Fault("http_500", fraction=0.03, first=2)]) as server:
        ...  # server.url, server.requests, server.count

As a process: ``python -m tests.servers.scripted --port 0 --fault reset:fraction=0.03:first=1 --log requests.jsonl``, or
by the file's path. It prints its URL as its first line.

It speaks just enough HTTP/1.1, on plain sockets, so that every way of breaking the protocol can be written down.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Body = dict[str, Any]

Outage = Literal["loading", "bad_gateway", "dropping"]
"""How a server that is down shows it: 503 as llama.cpp while it loads, 502 as a gateway with nothing behind it, or
connections that are taken and reset, as Docker's port forwarding does."""


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


@dataclass(frozen=True)
class Received:
    """A request as it came: header names in lower case, and the body both raw and parsed."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: Body
    time: float
    """``time.monotonic()`` at its arrival."""


def number_for(body: Body) -> str:
    """An answer that depends on the whole prompt: a stable number, written as GSM8K's answers are."""
    prompt = body.get("messages") or body.get("prompt")
    digest = hashlib.sha256(json.dumps(prompt).encode()).digest()
    return f"The answer is {int.from_bytes(digest[:2], 'big')}."


class ScriptedServer:
    """Serves ``/v1/chat/completions``, ``/v1/completions``, ``/v1/models`` and ``/health`` from a thread of its own.

    Args:
        answer: the text for a request body, or the whole reply as a dict. Called in the server's thread.
        faults: the first that befalls a request is what it gets.
        models: served under ``/v1/models``: names, or ``(name, max_model_len)``.
        latency: seconds before every reply, or a function of the body that gives them.
        api_key: if given, other keys are refused with 401.
        port: 0 picks a free one, which is kept over :meth:`stop` and :meth:`start`.
        log: a file to which every request is appended as one JSON line.
    """

    def __init__(
        self,
        answer: Callable[[Body], str | Body] = number_for,
        *,
        faults: Sequence[Fault] = (),
        models: Sequence[str | tuple[str, int]] = (("scripted-model", 4096),),
        latency: float | Callable[[Body], float] = 0.0,
        api_key: str | None = None,
        port: int = 0,
        log: Path | None = None,
    ) -> None:
        self.answer = answer
        self.faults = tuple(faults)
        self.models = [(model, None) if isinstance(model, str) else model for model in models]
        self.latency = latency
        self.api_key = api_key
        self.requests: list[Received] = []
        """Requests for an answer, in order of arrival; look-ups (``/health``, ``/v1/models``) are in ``lookups``."""
        self.lookups: list[str] = []
        self.answered: list[Body] = []
        """Bodies that were given a good answer, in that order."""
        self.refuse_lookups: int | None = None
        """A status that ``/health`` and ``/v1/models`` give instead of their own."""
        self.outage: Outage | None = None
        """While set, nothing is answered, ``/health`` included."""
        self.most_at_once = 0
        """The largest number of requests that were being answered at the same time."""
        self._port = port
        self._log_path = log
        self._log: TextIO | None = None
        self._at_once = 0
        self._seen: Counter[bytes] = Counter()
        self._index: dict[bytes, int] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The server's root, without ``/v1``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def count(self) -> int:
        """Requests for an answer so far."""
        return len(self.requests)

    def __enter__(self) -> Self:
        self._log = self._log_path.open("a", encoding="utf-8") if self._log_path else None
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted-server", daemon=True)
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(timeout=10)
        self._loop.close()
        if self._log is not None:
            self._log.close()

    def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._call(self._start())

    def stop(self) -> None:
        """Close the port and reset every connection, as a killed process does."""
        self._call(self._stop())

    def restart_after(self, seconds: float) -> threading.Timer:
        """Stop now and start again later; the timer may be joined."""
        self.stop()
        timer = threading.Timer(seconds, self.start)
        timer.start()
        return timer

    def _call(self, work: Awaitable[None]) -> None:
        asyncio.run_coroutine_threadsafe(_awaited(work), self._loop).result(timeout=10)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(
            self._connection, "127.0.0.1", self._port, backlog=4096, limit=2**24, reuse_address=True
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        wire = Wire(reader, writer)
        try:
            while (request := await _read_request(reader)) is not None and await self._serve(request, wire):
                pass
            wire.close()
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            wire.reset()
        finally:
            self._connections.discard(task)

    async def _serve(self, request: Received, wire: Wire) -> bool:
        """Reply; whether the connection stays open."""
        if self.outage is not None:
            return await _out_of_order(self.outage, wire)
        path = request.path.partition("?")[0]
        if path in ("/health", "/v1/models"):
            self.lookups.append(path)
            if self.refuse_lookups is not None:
                return await _status(wire, self.refuse_lookups, "no look-ups")
            return await wire.json(self._models() if path == "/v1/models" else {"status": "ok"})
        self._note(request)
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return await _status(wire, 401, "Incorrect API key provided", "invalid_api_key")
        if path not in ("/v1/chat/completions", "/v1/completions"):
            return await _status(wire, 404, f"no {path} here")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._reply(request, wire)
        finally:
            self._at_once -= 1

    def _note(self, request: Received) -> None:
        self.requests.append(request)
        if self._log is not None:
            line = {"path": request.path, "headers": request.headers, "body": request.body, "time": request.time}
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()

    async def _reply(self, request: Received, wire: Wire) -> bool:
        body_hash = hashlib.sha256(request.raw).digest()
        index = self._index.setdefault(body_hash, len(self._index))
        earlier = self._seen[body_hash]
        self._seen[body_hash] += 1
        wait = self.latency(request.body) if callable(self.latency) else self.latency
        if wait:
            await asyncio.sleep(wait)
        reply = self._good_reply(request)
        for fault in self.faults:
            if fault.befalls(body_hash, index, earlier):
                return await FAULT_KINDS[fault.kind](Case(fault, request, reply, wire))
        stays_open = await wire.json(reply)
        self.answered.append(request.body)
        return stays_open

    def _good_reply(self, request: Received) -> Body:
        answer = self.answer(request.body)
        if isinstance(answer, dict):
            return answer
        return reply_with(answer, request.body)

    def _models(self) -> Body:
        return {
            "object": "list",
            "data": [{"id": name, "object": "model", "max_model_len": length} for name, length in self.models],
        }


def reply_with(text: str | None, body: Body, finish_reason: str = "stop", **message: Any) -> Body:
    """A good reply to ``body`` of the kind it asks for; ``message`` adds to a chat message."""
    usage = {"prompt_tokens": 10, "completion_tokens": len((text or "").split()), "total_tokens": 10}
    common = {"id": "scripted-1", "created": 0, "model": body.get("model", ""), "usage": usage}
    if "messages" in body:
        said = {"role": "assistant", "content": text, **message}
        choice: Body = {"index": 0, "message": said, "finish_reason": finish_reason}
        return {"object": "chat.completion", **common, "choices": [choice]}
    choice = {"index": 0, "text": text, "finish_reason": finish_reason, "logprobs": None}
    return {"object": "text_completion", **common, "choices": [choice]}


async def _out_of_order(outage: Outage, wire: Wire) -> bool:
    if outage == "dropping":
        raise ConnectionResetError
    if outage == "bad_gateway":
        return await wire.send(b"<h1>502 Bad Gateway</h1>", 502, content_type="text/html")
    return await _status(wire, 503, "Loading model", "unavailable_error")


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        first_byte = await reader.readexactly(1)
        if first_byte == b"\x16":  # The beginning of TLS, which this server does not speak.
            return None
        head = first_byte + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    raw = await reader.readexactly(int(headers.get("content-length", 0)))
    try:
        body = json.loads(raw) if raw else {}
    except ValueError:
        body = {}
    # A client that takes this server for its proxy gives the whole URL.
    path = re.sub(r"^https?://[^/]+", "", first.split(" ")[1])
    return Received(path, headers, raw, body if isinstance(body, dict) else {}, time.monotonic())


@dataclass
class Wire:
    """The server's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def json(self, value: Any, status: int = 200, **headers: str) -> bool:
        return await self.send(json.dumps(value).encode(), status, **headers)

    async def send(self, body: bytes, status: int = 200, **headers: str) -> bool:
        """A whole reply. Header names are given with underscores; a header given replaces the usual one."""
        self.write_head(status, **{"content_length": str(len(body)), **headers})
        self.writer.write(body)
        await self.writer.drain()
        return True

    def write_head(self, status: int = 200, **headers: str) -> None:
        named = {"content_type": "application/json", "date": formatdate(usegmt=True), **headers}
        lines = [f"{name.replace('_', '-').title()}: {value}" for name, value in named.items()]
        self.writer.write("\r\n".join([f"HTTP/1.1 {status} Scripted", *lines, "", ""]).encode("latin-1"))

    def reset(self) -> None:
        """Close with RST, so that the client sees a reset and not an orderly end."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.close()


async def _status(wire: Wire, status: int, message: str, kind: str = "invalid_request_error", **headers: str) -> bool:
    error = {"message": message, "type": kind, "param": None, "code": status}
    return await wire.json({"error": error}, status, **headers)


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
        return await _status(self.wire, status, self.fault.text or message, kind, **headers)

    async def say(self, text: str | None, finish_reason: str = "stop", **message: Any) -> bool:
        return await self.wire.json(reply_with(text, self.request.body, finish_reason, **message))


FAULT_KINDS: dict[str, Callable[[Case], Awaitable[bool]]] = {}


def _fault(function: Callable[[Case], Awaitable[bool]]) -> Callable[[Case], Awaitable[bool]]:
    FAULT_KINDS[function.__name__] = function
    return function


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


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible server.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--answer", help="this text for every request; default: a number that depends on the prompt")
    parser.add_argument("--model", default="scripted-model")
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--api-key")
    parser.add_argument("--fault", type=parse_fault, action="append", default=[])
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    fixed = options.answer
    server = ScriptedServer(
        answer=number_for if fixed is None else lambda _: str(fixed),
        faults=options.fault,
        models=[(options.model, 4096)],
        latency=options.latency,
        api_key=options.api_key,
        port=options.port,
        log=options.log,
    )
    with server, contextlib.suppress(KeyboardInterrupt):
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
