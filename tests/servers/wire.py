"""Just enough HTTP/1.1 on plain sockets, so that every way of breaking the protocol can be written down."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Received:
    """A request as it came: header names in lower case, and the body both raw and parsed."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: Body
    time: float
    """``time.monotonic()`` at its arrival."""


async def read_request(reader: asyncio.StreamReader) -> Received | None:
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

    async def stream(self, events: Sequence[bytes], *, ends: bool = True) -> bool:
        """Server-sent events, each in a chunk of its own; without the end of the body unless it `ends`."""
        self.write_head(content_type="text/event-stream", transfer_encoding="chunked")
        for event in events:
            self.writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await self.writer.drain()
        if ends:
            self.writer.write(b"0\r\n\r\n")
            await self.writer.drain()
        return ends

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

    async def error(self, status: int, message: str, kind: str = "invalid_request_error", **headers: str) -> bool:
        """An error status with the body that most servers give it."""
        error = {"message": message, "type": kind, "param": None, "code": status}
        return await self.json({"error": error}, status, **headers)


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


def events_of(reply: Body, body: Body) -> list[bytes]:
    """A good reply as vLLM streams it: an opening, three letters an event, the end, usage if asked for, ``[DONE]``."""
    choice = reply["choices"][0]
    said = choice.get("message") or {"content": choice.get("text")}
    fields: dict[str, str] = {name: said[name] for name in ("reasoning_content", "content") if said.get(name)}
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    deltas += [{name: text[i : i + 3]} for name, text in fields.items() for i in range(0, len(text), 3)]
    deltas += [{"tool_calls": said["tool_calls"]}] if said.get("tool_calls") else []

    def event(choices: list[Body], **more: Any) -> bytes:
        return b"data: %b\n\n" % json.dumps({"model": reply.get("model"), "choices": choices, **more}).encode()

    def part(delta: Body, finish_reason: str | None = None) -> Body:
        shown = {"delta": delta} if "messages" in body else {"text": delta.get("content", "")}
        return {"index": 0, **shown, "finish_reason": finish_reason}

    events = [event([part(delta)]) for delta in deltas]
    events.append(event([part({}, choice.get("finish_reason"))]))
    if body.get("stream_options", {}).get("include_usage"):
        events.append(event([], usage=reply.get("usage")))
    return [*events, b"data: [DONE]\n\n"]
