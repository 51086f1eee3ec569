"""A server that answers every completion at once with the same text, and tells when the first request came.

With a tokenizer it also gives the log-probabilities of a prompt's tokens. Run as
``python -m benchmarks.instant_server PORT TEXT [TOKENIZER]``. GET /watch?PID names the client's process and starts
counting anew; GET /stats gives ``requests``, the Unix times of the ``first`` and the ``last``, the client's CPU seconds
until the first (``first_cpu``), and what the client did from the first to the last time that it was looked at:
``seen_requests`` in ``seen_cpu`` CPU seconds; and starts counting anew, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tests.parity.answers import OneTokenModel

_LOOK_EVERY = 50


class Stats:
    """What has been asked so far."""

    def __init__(self) -> None:
        self.begin(pid=0)

    def begin(self, pid: int) -> None:
        """Count anew, for this client."""
        self.pid = pid
        self.requests = 0
        self.first = self.last = 0.0
        self.first_cpu = self.last_cpu = 0.0
        self.seen_requests = 0

    def count(self) -> None:
        """A request has come."""
        self.last = time.time()
        if not self.requests:
            self.first, self.first_cpu = self.last, cpu_seconds(self.pid)
        elif self.requests % _LOOK_EVERY == 0:
            self.last_cpu, self.seen_requests = cpu_seconds(self.pid), self.requests
        self.requests += 1

    def summary(self) -> dict[str, float]:
        """All that as plain data."""
        return {
            "requests": self.requests,
            "first": self.first,
            "last": self.last,
            "first_cpu": self.first_cpu,
            "seen_requests": self.seen_requests,
            "seen_cpu": self.last_cpu - self.first_cpu,
        }


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its threads so far; 0 of one that has ended."""
    try:
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    except FileNotFoundError:
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class InstantAnswers(asyncio.Protocol):
    """Just enough HTTP/1.1: keep-alive, Content-Length bodies, no pipelining."""

    def __init__(self, replies: dict[bytes, bytes], model: OneTokenModel | None, stats: Stats) -> None:
        self._replies = replies
        self._model = model
        self._stats = stats
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Answer each request as soon as it is whole."""
        self._received += data
        while (head_end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:head_end].lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
            if len(self._received) < head_end + 4 + length:
                return
            path = self._received.split(b" ", 2)[1]
            content = self._received[head_end + 4 : head_end + 4 + length]
            self._received = self._received[head_end + 4 + length :]
            self._transport.write(self._reply(path, content))

    def _reply(self, path: bytes, content: bytes) -> bytes:
        if path.endswith(b"completions"):
            self._stats.count()
        body = self._replies.get(path)
        if self._model is not None and b'"echo": true' in content:
            body = msgspec.json.encode(self._model.reply(json.loads(content)["prompt"][0]))
        if path == b"/stats":
            body = json.dumps(self._stats.summary()).encode()
            self._stats.begin(self._stats.pid)
        elif path.startswith(b"/watch?"):
            self._stats.begin(int(path.partition(b"?")[2]))
            body = b"{}"
        if body is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


def replies(text: str) -> dict[bytes, bytes]:
    usage = {"prompt_tokens": 900, "completion_tokens": 90, "total_tokens": 990}
    envelope = {"id": "x", "model": "bench", "usage": usage}
    chat = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    plain = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
    return {
        b"/v1/chat/completions": json.dumps({**envelope, "choices": [chat]}).encode(),
        b"/v1/completions": json.dumps({**envelope, "choices": [plain]}).encode(),
        b"/v1/models": json.dumps({"data": [{"id": "bench", "max_model_len": 16384}]}).encode(),
    }


def _model(tokenizer: str) -> OneTokenModel:
    from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
    from tests.parity.answers import OneTokenModel

    return OneTokenModel(HuggingFaceTokenizer(tokenizer))


async def serve(port: int, text: str, tokenizer: str | None = None) -> None:
    stats, known = Stats(), replies(text)
    model = None if tokenizer is None else _model(tokenizer)
    server = await asyncio.get_running_loop().create_server(
        lambda: InstantAnswers(known, model, stats), "127.0.0.1", port, backlog=2048
    )
    print("READY", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), *sys.argv[2:]))
