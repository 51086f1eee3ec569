"""A small HTTP proxy: passes requests for ``http`` addresses on, and opens tunnels (CONNECT) for ``https`` ones."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import threading
from typing import Self


class Proxy:
    """Runs in a thread of its own; connects to 127.0.0.1, whatever the host's name is.

    Args:
        refuse: if given, the status with which every tunnel is refused.
        context: if given, the proxy itself speaks TLS.
    """

    def __init__(self, *, refuse: int | None = None, context: ssl.SSLContext | None = None) -> None:
        self.refuse = refuse
        self.heads: list[str] = []
        """The heads of what it was asked."""
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'http' if self._context is None else 'https'}://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(timeout=10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._pass_on(reader, writer)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.heads.append(head)
        first, _, fields = head.partition("\r\n")
        method, target, _ = first.split(" ")
        if method == "CONNECT" and self.refuse is not None:
            writer.write(f"HTTP/1.1 {self.refuse} No\r\nContent-Length: 2\r\n\r\nno".encode())
            await writer.drain()
            return
        port = int(target.rpartition(":")[2]) if method == "CONNECT" else int(re.findall(r"://[^/]*:(\d+)", target)[0])
        behind, before = await asyncio.open_connection("127.0.0.1", port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\nProxy-Agent: test\r\n\r\n")
        else:
            path = re.sub(r"^http://[^/]*", "", target)
            before.write(f"{method} {path} HTTP/1.1\r\n{fields}".encode("latin-1"))
        try:
            await asyncio.gather(_pump(reader, before), _pump(behind, writer))
        finally:
            before.close()


async def _pump(source: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
    while data := await source.read(2**16):
        drain.write(data)
        await drain.drain()
    drain.close()
