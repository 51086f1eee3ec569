"""A model behind an OpenAI-compatible HTTP endpoint."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

import yarl

from assay.errors import ServerUnreachableError, SpecificationError
from assay.models.health import ServerHealth
from assay.models.logprobs import Loglikelihood, read_echo, unanswerable
from assay.models.messages import Redactor
from assay.models.retry import DOWN_STATUSES, Fault, Hope, network_fault, retry_delay, status_fault
from assay.models.server_info import ServerInfo, server_info
from assay.models.tls import client_context
from assay.models.transport import LARGEST_REPLY, Transport, open_transport, proxy_for
from assay.models.urls import endpoint_url, models_url, server_root
from assay.models.wire import ReplyError, Said, read_reply
from assay.types import Answer, Failure, FailureCause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from assay.types import ModelSpec, Request, Response, TextTail, TokenSpan

T = TypeVar("T")

_LOOK_TIMEOUT = 5.0
_LOOK_LASTS = 1.0


class _Reply(NamedTuple, Generic[T]):
    """A good reply and what it took."""

    content: T
    latency: float
    """Seconds of the last attempt."""
    attempts: int


class OpenAIModel:
    """Asks one endpoint; use as ``async with OpenAIModel(spec, api_key=key) as model``.

    Any number of coroutines may call :meth:`ask` at once; each holds its own connection.

    Args:
        spec: which endpoint and model, time-outs and attempts.
        api_key: sent as bearer token; shown nowhere.
        clock: a monotonic clock in seconds.
        sleep: waits for so many seconds of that clock.
        rng: jitter for the waits.

    Raises:
        SpecificationError: the base URL is no URL, the key cannot be sent in a header, or TLS cannot be set up.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        api_key: str | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.sleep = sleep
        key = (api_key or "").strip()
        if not (key.isprintable() and key.isascii()):
            raise SpecificationError(f"the key in {spec.api_key_env} holds characters that cannot be sent in a header")
        # lm-eval sends the header without a key too.
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.redact = Redactor(key)
        self._url = yarl.URL(endpoint_url(spec.base_url, spec.endpoint))
        self._models_url = yarl.URL(models_url(spec.base_url))
        self.address = server_root(spec.base_url)
        """The server's root, for messages."""
        self._rng = rng or random.Random()
        self._health = ServerHealth(
            self.address,
            concurrency=spec.concurrency,
            give_up_after=spec.give_up_after,
            clock=clock,
            sleep=sleep,
            rng=self._rng,
        )
        self._looking = asyncio.Lock()
        self._seen_alive = float("-inf")
        self._proxy = proxy_for(self._url)
        self._context = client_context(spec.tls)
        self._transport: Transport | None = None

    def __repr__(self) -> str:
        return f"OpenAIModel({self.spec.model!r} at {self.address})"

    async def __aenter__(self) -> Self:
        self._transport = open_transport(self._url, self._headers, self._proxy, self._context)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    async def ask(self, request: Request) -> Response:
        """The model's answer, or why there is none after all attempts.

        Raises:
            ServerUnreachableError: the server has been down, or has failed every request, for too long.
            ServerRefusedError: the server refuses every request.
        """
        if request.scored is not None:
            return await self._loglikelihood(request, request.scored)
        reply = await self._exchange(request.payload, self._read)
        if isinstance(reply, Failure):
            return reply
        said = reply.content
        return Answer(
            text=said.text,
            finish_reason=said.finish_reason,
            reasoning=said.reasoning,
            prompt_tokens=said.prompt_tokens,
            completion_tokens=said.completion_tokens,
            latency=reply.latency,
            attempts=reply.attempts,
            model=said.model if said.model != self.spec.model else None,
        )

    async def _loglikelihood(self, request: Request, scored: TokenSpan | TextTail) -> Response:
        if (failure := unanswerable(scored)) is not None:
            return failure

        def read(body: bytes) -> tuple[Said, Loglikelihood]:
            return self._read(body), read_echo(body).loglikelihood(scored)

        reply = await self._exchange(request.payload, read)
        if isinstance(reply, Failure):
            return reply
        said, (logprob, is_greedy) = reply.content
        return Answer(
            text=None,
            logprob=logprob,
            is_greedy=is_greedy,
            prompt_tokens=said.prompt_tokens,
            completion_tokens=said.completion_tokens,
            latency=reply.latency,
            attempts=reply.attempts,
            model=said.model if said.model != self.spec.model else None,
        )

    async def exchange(self, payload: bytes, read: Callable[[bytes], T]) -> T | Failure:
        """What `read` makes of the body of a reply, or why there is none after all attempts.

        Args:
            payload: the request's body.
            read: raises :class:`assay.models.wire.ReplyError` for a body that is no answer.

        Raises:
            ServerUnreachableError, ServerRefusedError: as :meth:`ask`.
        """
        reply = await self._exchange(payload, read)
        return reply if isinstance(reply, Failure) else reply.content

    def _read(self, body: bytes) -> Said:
        return read_reply(body, self.spec.endpoint)

    async def _exchange(self, payload: bytes, read: Callable[[bytes], T]) -> _Reply[T] | Failure:
        attempts = failures = 0
        while True:
            ticket = await self._health.enter()
            attempts += 1
            started = self.clock()
            try:
                result = await self._attempt(payload, read)
            finally:
                self._health.leave(ticket)
            if not isinstance(result, Fault):
                self._health.answered()
                return _Reply(result, self.clock() - started, attempts)
            latency = self.clock() - started
            if await self._server_is_down(result):
                self._health.down(result, ticket)
                continue
            self._health.alive()
            failures += 1
            if result.hope is Hope.NONE or failures >= self.spec.max_attempts:
                self._health.lost(result)
                return Failure(
                    cause=result.cause, message=result.message, status=result.status, latency=latency, attempts=attempts
                )
            await self.sleep(retry_delay(result, failures, self._rng))

    async def server_info(self, *, wait: float = 0.0) -> ServerInfo:
        """Which models the server lists; see :func:`assay.models.server_info.server_info`."""
        return await server_info(self, wait=wait)

    async def get(self, path: str, timeout: float = _LOOK_TIMEOUT) -> tuple[int, bytes]:
        """Status and body of a GET.

        Args:
            path: ``/v1/models`` for the list of models, wherever the base URL says it is; else relative to the root.
            timeout: seconds for the whole exchange.

        Raises:
            OSError: no reply.
        """
        url = self._models_url if path == "/v1/models" else yarl.URL(self.address + path)
        reply = await self._open_transport().request("GET", url, timeout=timeout)
        return reply.status, reply.body or b""

    def _open_transport(self) -> Transport:
        if self._transport is None:
            raise RuntimeError("OpenAIModel is used outside its `async with`")
        return self._transport

    async def _attempt(self, payload: bytes, read: Callable[[bytes], T]) -> T | Fault:
        try:
            reply = await self._open_transport().request("POST", self._url, payload, timeout=self.spec.request_timeout)
        except OSError as error:
            fault = network_fault(error)
            if fault.hope is Hope.NONE and fault.status is None:
                # Nothing about the request: no certificate will be trusted later.
                raise ServerUnreachableError(f"{self.address}: {self.redact(fault.message)}") from None
            return self._cleaned(fault)
        if not 200 <= reply.status < 300:
            return self._cleaned(status_fault(reply.status, reply.body or b"", reply.headers))
        if reply.body is None:
            message = f"the reply is larger than {LARGEST_REPLY // 2**20} MiB"
            return Fault(FailureCause.MALFORMED_REPLY, message, Hope.SOME, reply.status)
        try:
            return read(reply.body)
        except ReplyError as error:
            hope = Hope.NONE if error.is_final else Hope.SOME
            return self._cleaned(Fault(error.cause, str(error), hope, reply.status))

    def _cleaned(self, fault: Fault) -> Fault:
        return Fault(fault.cause, self.redact(fault.message), fault.hope, fault.status, fault.retry_after)

    async def _server_is_down(self, fault: Fault) -> bool:
        if fault.hope is not Hope.UNSURE:
            return fault.hope is Hope.SERVER_DOWN
        async with self._looking:
            # Many requests fail together when a server goes: one look is enough for all.
            if self._health.is_down:
                return True
            if self.clock() - self._seen_alive < _LOOK_LASTS:
                return False
            if await self._looks_alive():
                self._seen_alive = self.clock()
                return False
            return True

    async def _looks_alive(self) -> bool:
        """Whether the server answers anything at all now.

        ``/health`` comes first because some servers list their models while they still load; where there is no
        ``/health``, the list of models must do.
        """
        for path in ("/health", "/v1/models"):
            try:
                status, _ = await self.get(path)
            except OSError:
                return False
            if status in DOWN_STATUSES:
                return False
            if status < 300:
                return True
        return True
