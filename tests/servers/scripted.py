"""An OpenAI-compatible server that answers from a script and misbehaves on demand.

In a test::

    with ScriptedServer(answer=lambda body: "42", faults=[Fault("http_500", fraction=0.03, first=2)]) as server:
        ...  # server.url, server.requests, server.count

As a process: ``python -m tests.servers.scripted --port 0 --fault reset:fraction=0.03:first=1 --log requests.jsonl``, or
by the file's path. It prints its URL as its first line.

Its faults are in ``tests/servers/faults.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TextIO

if not __package__:  # Run by its path.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.servers.faults import FAULT_KINDS, Case, Fault, parse_fault
from tests.servers.wire import Body, Received, Wire, events_of, read_request, reply_with

__all__ = ["FAULT_KINDS", "Fault", "ScriptedServer", "number_for", "parse_fault", "reply_with"]

Outage = Literal["loading", "bad_gateway", "dropping"]
"""How a server that is down shows it: 503 as llama.cpp while it loads, 502 as a gateway with nothing behind it, or
connections that are taken and reset, as Docker's port forwarding does."""


def number_for(body: Body) -> str:
    """An answer that depends on the whole prompt: a stable number, written as GSM8K's answers are."""
    prompt = body.get("messages") or body.get("prompt")
    digest = hashlib.sha256(json.dumps(prompt).encode()).digest()
    return f"The answer is {int.from_bytes(digest[:2], 'big')}."


SHORT_QUESTION = b"What is 17 + 25?"
"""What a client asks to see whether its own requests are at fault; it has no place among the bodies."""

NEVER = 3600.0
"""A latency that outlasts every test: who waits for the reply is stopped, or waits until the server is."""


class ScriptedServer:
    """Serves ``/v1/chat/completions``, ``/v1/completions``, ``/v1/models`` and ``/health`` from a thread of its own.

    Args:
        answer: the text for a request body, or the whole reply as a dict. Called in the server's thread.
        faults: the first that befalls a request is what it gets.
        models: served under ``/v1/models``: names, or ``(name, max_model_len)``.
        model_list: if given, the whole of ``/v1/models``.
        latency: seconds before every reply, or a function of the body that gives them.
        api_key: if given, other keys are refused with 401.
        port: 0 picks a free one, which is kept over :meth:`stop` and :meth:`start`.
        log: a file to which every request is appended as one JSON line.
        context: if given, TLS is spoken.
        under: the path under which the endpoints are.
        refuse: says of a request with which status and message it is refused; None where it is not.
        json_pages: by path, what else the server answers: JSON, by a function of the request's body.
    """

    usual_context: ssl.SSLContext | None = None
    """Taken where no context is given."""

    def __init__(
        self,
        answer: Callable[[Body], str | Body] = number_for,
        *,
        faults: Sequence[Fault] = (),
        models: Sequence[str | tuple[str, int]] = (("scripted-model", 4096),),
        model_list: Any = ...,
        latency: float | Callable[[Body], float] = 0.0,
        api_key: str | None = None,
        port: int = 0,
        log: Path | None = None,
        context: ssl.SSLContext | None = None,
        under: str = "/v1",
        refuse: Callable[[Received], tuple[int, str] | None] = lambda _: None,
        json_pages: Mapping[str, Callable[[Body], Body]] | None = None,
    ) -> None:
        self.refuse = refuse
        self.json_pages = json_pages or {}
        self.under = under
        self.answer = answer
        self.faults = tuple(faults)
        named = [(model, None) if isinstance(model, str) else model for model in models]
        listed = [{"id": name, "object": "model", "max_model_len": length} for name, length in named]
        self.model_list = {"object": "list", "data": listed} if model_list is ... else model_list
        self.latency = latency
        self.api_key = api_key
        self.requests: list[Received] = []
        """Requests for an answer, in order of arrival; look-ups (``/health``, ``/v1/models``) are in ``lookups``."""
        self.probes: list[Received] = []
        """Requests for an answer that say they are a probe's; no others count as that."""
        self.lookups: list[str] = []
        self.answered: list[Body] = []
        """Bodies that were given a good answer, in that order."""
        self.refuse_lookups: int | None = None
        """A status that ``/health`` and ``/v1/models`` give instead of their own."""
        self.lookups_reset: frozenset[int] = frozenset()
        """Which look-ups, counted from 0, are given a reset connection."""
        self.outage: Outage | None = None
        """While set, nothing is answered, ``/health`` included."""
        self.most_at_once = 0
        """The largest number of requests that were being answered at the same time."""
        self._port = port
        self._context = context or self.usual_context
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
        return f"{'http' if self._context is None else 'https'}://127.0.0.1:{self._port}"

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

    def hold_after(self, count: int, latency: float = 0.0) -> None:
        """Give no answer that is asked for once `count` more are given, so that no run ends before it is stopped.

        Args:
            count: answers more; a few that are under way by then may be given as well.
            latency: seconds before each of them.
        """
        whole = len(self.answered) + count
        self.latency = lambda _: latency if len(self.answered) < whole else NEVER

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
            self._connection,
            "127.0.0.1",
            self._port,
            backlog=4096,
            limit=2**24,
            reuse_address=True,
            ssl=self._context,
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            # asyncio forgets connections that it is taking while it closes: neither served nor reset.
            for listening in self._server.sockets:
                self._loop.remove_reader(listening.fileno())
            for _ in range(4):
                await asyncio.sleep(0)
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
            while (request := await read_request(reader)) is not None and await self._serve(request, wire):
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
        if path == "/health" or path.endswith("/models"):
            self.lookups.append(path)
            if len(self.lookups) - 1 in self.lookups_reset:
                raise ConnectionResetError
            if self.refuse_lookups is not None:
                return await wire.error(self.refuse_lookups, "no look-ups")
            if path not in ("/health", f"{self.under}/models"):
                return await wire.error(404, f"no {path} here")
            return await wire.json({"status": "ok"} if path == "/health" else self.model_list)
        if path in self.json_pages:
            return await wire.json(self.json_pages[path](request.body))
        if path in ("/metrics", "/props", "/tokenizer_info"):
            return await wire.error(404, f"no {path} here")
        self._note(request)
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return await wire.error(401, "Incorrect API key provided", "invalid_api_key")
        if (refusal := self.refuse(request)) is not None:
            return await wire.error(*refusal)
        if path not in (f"{self.under}/chat/completions", f"{self.under}/completions"):
            return await wire.error(404, f"no {path} here")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._reply(request, wire)
        finally:
            self._at_once -= 1

    def _note(self, request: Received) -> None:
        (self.probes if "x-assay-probe" in request.headers else self.requests).append(request)
        if self._log is not None:
            line = {"path": request.path, "headers": request.headers, "body": request.body, "time": request.time}
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()

    async def _reply(self, request: Received, wire: Wire) -> bool:
        body_hash = hashlib.sha256(request.raw).digest()
        is_probe = "x-assay-probe" in request.headers
        is_of_the_run = not is_probe and SHORT_QUESTION not in request.raw
        index = self._index.setdefault(body_hash, len(self._index)) if is_of_the_run else -1
        earlier = self._seen[body_hash]
        self._seen[body_hash] += 1
        wait = self.latency(request.body) if callable(self.latency) else self.latency
        if wait:
            await asyncio.sleep(wait)
        try:
            reply = self._good_reply(request)
        except Exception as error:
            return await wire.error(400, f"the test's answer function raised {error!r}")
        for fault in self.faults:
            if (is_probe or not fault.probes_only) and fault.befalls(body_hash, index, earlier):
                return await FAULT_KINDS[fault.kind](Case(fault, request, reply, wire))
        if not is_probe:
            self.answered.append(request.body)
        return (
            await wire.stream(events_of(reply, request.body)) if request.body.get("stream") else await wire.json(reply)
        )

    def _good_reply(self, request: Received) -> Body:
        answer = self.answer(request.body)
        if isinstance(answer, dict):
            return answer
        return reply_with(answer, request.body)


async def _out_of_order(outage: Outage, wire: Wire) -> bool:
    if outage == "dropping":
        raise ConnectionResetError
    if outage == "bad_gateway":
        return await wire.send(b"<h1>502 Bad Gateway</h1>", 502, content_type="text/html")
    return await wire.error(503, "Loading model", "unavailable_error")


async def _awaited(work: Awaitable[None]) -> None:
    await work


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
