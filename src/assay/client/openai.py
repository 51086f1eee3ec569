"""The client of a model behind one or several OpenAI-compatible endpoints."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from assay._util.durations import format_duration
from assay.client.auto_concurrency import concurrency_of
from assay.client.endpoint import Endpoint
from assay.client.giving_up import LostAttempt, Patience
from assay.client.headers import request_headers
from assay.client.health import ServerHealth
from assay.client.load import LoadReader
from assay.client.logprobs import Loglikelihood, read_echo, unanswerable
from assay.client.pool import Pool
from assay.client.preflight import Preflight, ask_shortly, run_preflight, why_not_readmitted
from assay.client.rate_limit import RateLimit
from assay.client.refusals import short_question, what_to_do
from assay.client.replies import ParsedReply, read_reply
from assay.client.retry import NOT_NOW, Fault, Retryability, is_bad_request, retry_delay
from assay.client.server_info import ServerInfo, bare_name, server_info
from assay.client.single_server import SingleServer
from assay.client.thinking import without_thinking
from assay.types import Answer, Failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from assay.client.concurrency import Concurrency, ServerLoad
    from assay.client.pool_member import Member
    from assay.client.servers import Servers
    from assay.types import ModelSpec, Request, Response, TextTail, TokenSpan

T = TypeVar("T")

_CHECK_FOR_ROOM_EVERY = 0.25

_log = logging.getLogger(__name__)


class TimedReply(msgspec.Struct, Generic[T], frozen=True):
    """A good reply, with its latency and attempts."""

    content: T
    latency: float
    """Seconds of the last attempt."""
    attempts: int
    endpoint: str | None
    """The endpoint that gave it; None if there is only one."""


class OpenAIModel:
    """Asks one endpoint or several; use as ``async with OpenAIModel(spec, api_key=key) as model``.

    Any number of coroutines may call :meth:`ask` at once; each holds its own connection.

    Args:
        spec: which endpoint and model, time-outs and attempts.
        api_key: sent as bearer token; shown nowhere.
        concurrency: limits outstanding requests. Notified of failed attempts, and asked before a retry. By default as
            the specification says.
        clock: a monotonic clock in seconds.
        sleep: waits for so many seconds of that clock.
        rng: jitter for the waits.
        preflight: the result of an earlier check of several endpoints.
        tell: called with a line when a server is down or set aside, and when it is back; by default the log.
        is_probe: mark the requests as a probe's, which are not scored.

    Raises:
        SpecificationError: the base URL is no URL, the key cannot be sent in a header, or TLS cannot be set up.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        api_key: str | None,
        concurrency: Concurrency | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
        preflight: Preflight | None = None,
        tell: Callable[[str], None] | None = None,
        is_probe: bool = False,
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.sleep = sleep
        headers = request_headers(spec, api_key, is_probe=is_probe)
        self.redact = headers.redact
        self._read = partial(read_reply, endpoint=spec.endpoint)
        self._rng = rng or random.Random()
        self._tell = tell or _log.warning
        self._preflight = preflight
        self.endpoints = tuple(Endpoint(base_url, spec, headers=headers, clock=clock) for base_url in spec.base_urls)
        self.address = ", ".join(endpoint.address for endpoint in self.endpoints)
        """The servers' roots, for messages."""
        self._concurrency = concurrency or concurrency_of(spec)
        self._loads = LoadReader(self.endpoints)
        self._patience = Patience(
            [endpoint.address for endpoint in self.endpoints],
            limit=spec.give_up_after,
            clock=clock,
            sleep=sleep,
            tell=self._tell,
            advice=partial(what_to_do, spec=spec),
        )
        self._rate = RateLimit(spec.requests_per_minute, spec.tokens_per_minute, wait=self._patience.wait, clock=clock)
        self._pool = self._make_pool() if len(self.endpoints) > 1 else None
        self._servers: Servers = self._pool or self._single_server()

    def _single_server(self) -> SingleServer:
        return SingleServer(self.endpoints[0], ServerHealth(clock=self.clock, sleep=self.sleep, rng=self._rng))

    def _make_pool(self) -> Pool:
        return Pool(
            self.endpoints,
            max_attempts=self.spec.max_attempts,
            clock=self.clock,
            sleep=self.sleep,
            rng=self._rng,
            tell=self._tell,
            why_not_readmitted=self._why_not_readmitted,
            ask=partial(ask_shortly, spec=self.spec),
        )

    async def _why_not_readmitted(self, endpoint: Endpoint) -> str | None:
        """Why an endpoint that was down may not come back; None if it may."""
        if self._preflight is None:
            return None
        return await why_not_readmitted(endpoint, self._preflight, self.spec.model)

    def __repr__(self) -> str:
        return f"OpenAIModel({self.spec.model!r} at {self.address})"

    async def __aenter__(self) -> Self:
        for endpoint in self.endpoints:
            endpoint.open()
        if self._pool is not None and self._preflight is not None:
            for endpoint in self.endpoints:
                if endpoint.address in self._preflight.absent:
                    self._pool.start_aside(endpoint, self._preflight.absent[endpoint.address])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._patience.close()
        await self._servers.close()
        for endpoint in self.endpoints:
            await endpoint.close()

    async def ask(self, request: Request) -> Response:
        """The model's answer, or the failure after all attempts.

        Raises:
            ServerUnreachableError: nothing has been answered for too long.
            ServerRefusedError: the server refuses every request.
        """
        if request.scored is not None:
            return await self._loglikelihood(request, request.scored)
        payload = request.payload
        if self.spec.stream:
            reply = await self._exchange(payload, Endpoint.attempt_stream, Endpoint.attempt_stream)
        else:
            reply = await self.timed_exchange(payload, self._read)
        if isinstance(reply, Failure):
            return reply
        parsed = reply.content
        text, reasoning = without_thinking(parsed.text, parsed.reasoning, self.spec.think_end_token)
        return Answer(
            text=text,
            finish_reason=parsed.finish_reason,
            reasoning=reasoning,
            reasoning_tokens=parsed.reasoning_tokens,
            prompt_tokens=parsed.prompt_tokens,
            completion_tokens=parsed.completion_tokens,
            latency=reply.latency,
            ttft=parsed.ttft,
            attempts=reply.attempts,
            model=self._other_model(parsed),
            endpoint=reply.endpoint,
        )

    async def _loglikelihood(self, request: Request, scored: TokenSpan | TextTail) -> Response:
        if (failure := unanswerable(scored)) is not None:
            return failure

        def read(body: bytes) -> tuple[ParsedReply, Loglikelihood]:
            echo = read_echo(body)
            return echo.parsed, echo.loglikelihood(scored)

        reply = await self.timed_exchange(request.payload, read)
        if isinstance(reply, Failure):
            return reply
        parsed, (logprob, is_greedy) = reply.content
        return Answer(
            text=None,
            logprob=logprob,
            is_greedy=is_greedy,
            prompt_tokens=parsed.prompt_tokens,
            completion_tokens=parsed.completion_tokens,
            latency=reply.latency,
            attempts=reply.attempts,
            model=self._other_model(parsed),
            endpoint=reply.endpoint,
        )

    async def exchange(self, payload: bytes, read: Callable[[bytes], T]) -> T | Failure:
        """Send a request, and return its reply as `read` parses it, or the failure after all attempts.

        Args:
            payload: the request's body.
            read: parses a reply's body; raises :class:`assay.client.replies.ReplyError` if it is not an answer.

        Raises:
            ServerUnreachableError, ServerRefusedError: as :meth:`ask`.
        """
        reply = await self.timed_exchange(payload, read)
        return reply if isinstance(reply, Failure) else reply.content

    async def timed_exchange(self, payload: bytes, read: Callable[[bytes], T]) -> TimedReply[T] | Failure:
        """As :meth:`exchange`, with the latency and the number of attempts."""
        return await self._exchange(
            payload,
            lambda endpoint, body: endpoint.attempt(body, read),
            lambda endpoint, body: endpoint.attempt(body, self._read),
        )

    async def _exchange(
        self,
        payload: bytes,
        attempt: Callable[[Endpoint, bytes], Awaitable[T | Fault]],
        ask_plainly: Callable[[Endpoint, bytes], Awaitable[object]],
    ) -> TimedReply[T] | Failure:
        self._patience.begin()
        try:
            return await self._exchange_patiently(payload, attempt, ask_plainly)
        finally:
            self._patience.end()

    async def _exchange_patiently(
        self,
        payload: bytes,
        attempt: Callable[[Endpoint, bytes], Awaitable[T | Fault]],
        ask_plainly: Callable[[Endpoint, bytes], Awaitable[object]],
    ) -> TimedReply[T] | Failure:
        servers, patience = self._servers, self._patience
        attempts = failures = 0
        failing_since: float | None = None
        faults: dict[Endpoint, Fault] = {}
        bad: LostAttempt | None = None
        """The last attempt at which a server called the request itself bad."""
        while True:
            while (lease := servers.enter(faults)) is None:
                if bad is not None:
                    await patience.refused(bad)
                    return self._failure(bad, attempts)
                await patience.wait_for_server(servers.wait())
            estimate = await self._rate.admit(payload) if self._rate.is_set else 0.0
            attempts += 1
            started = self.clock()
            try:
                result = await patience.attempt(attempt(lease.endpoint, payload))
            finally:
                servers.leave(lease)
            latency = self.clock() - started
            if not isinstance(result, Fault):
                servers.answered(lease, latency, faults)
                self._pace(lease.endpoint, estimate, result)
                patience.answered(lease.endpoint)
                return TimedReply(result, latency, attempts, self._name_of(lease.endpoint))
            self._concurrency.failed(result.cause, started, self.clock())
            is_down = await lease.endpoint.is_down(result)
            asking = [partial(_ask_shortly, ask, lease.endpoint, payload) for ask in (attempt, ask_plainly)]
            lost = LostAttempt(lease.endpoint, result, latency, is_down, *asking)
            patience.failed(lost)
            result = result.waiting_at_most(self.spec.give_up_after)
            if is_down:
                servers.down(lease, result)
                continue
            servers.failed(lease, result)
            failures += 1
            failing_since = self.clock() if failing_since is None else failing_since
            faults[lease.endpoint] = result
            if is_bad_request(result):
                bad = lost
            has_attempts_left = failures < self.spec.max_attempts
            if has_attempts_left and servers.another(result, faults):
                continue
            if result.retryability is Retryability.NO:
                await patience.refused(lost)
            elif result.status in NOT_NOW and patience.has_answered_nothing_since(failing_since):
                has_attempts_left = True
            if result.retryability is Retryability.NO or not has_attempts_left:
                return self._failure(lost, attempts)
            await self._pause(retry_delay(result, failures, self._rng))

    def _pace(self, endpoint: Endpoint, estimate: float, result: object) -> None:
        """Update the rate limit from an answer's headers and token counts."""
        seconds = endpoint.used_up_for
        # Do not wait for a daily quota: the server's refusal gives a better message.
        if seconds and seconds <= self.spec.give_up_after and self._rate.exhausted(seconds):
            self._tell(
                f"{endpoint.address} allows nothing more for {format_duration(seconds)} (by its x-ratelimit headers)"
            )
        if self._rate.is_set:
            parsed = result[0] if isinstance(result, tuple) else result
            self._rate.answered(estimate, _tokens_of(parsed) if isinstance(parsed, ParsedReply) else None)

    def _failure(self, lost: LostAttempt, attempts: int) -> Failure:
        return Failure(
            cause=lost.fault.cause,
            message=lost.fault.message,
            status=lost.fault.status,
            latency=lost.seconds,
            attempts=attempts,
            endpoint=self._name_of(lost.endpoint),
        )

    async def _pause(self, seconds: float) -> None:
        with self._concurrency.pause():
            await self._patience.wait(seconds)
            while not self._concurrency.has_room:
                await self._patience.wait(_CHECK_FOR_ROOM_EVERY)

    def _name_of(self, endpoint: Endpoint) -> str | None:
        return None if self._pool is None else endpoint.address

    def _other_model(self, parsed: ParsedReply) -> str | None:
        asked = self.spec.model
        return None if parsed.model in (None, asked) or bare_name(parsed.model) == asked else parsed.model

    async def run_preflight(self) -> Preflight:
        """See the servers before the run; see :func:`assay.client.preflight.run_preflight`."""
        return await run_preflight(self.endpoints, self.spec)

    @property
    def members(self) -> Sequence[Member]:
        """Figures of each endpoint; empty if there is only one."""
        return () if self._pool is None else self._pool.members

    async def load(self) -> ServerLoad | None:
        """How busy the servers are; see :meth:`assay.client.load.LoadReader.read`."""
        return await self._loads.read(self._concurrency.in_flight)

    async def server_info(self, *, wait: float = 0.0) -> ServerInfo:
        """Which models the first server lists; see :func:`assay.client.server_info.server_info`."""
        return await server_info(self.endpoints[0], wait=wait, clock=self.clock, sleep=self.sleep)


def _tokens_of(parsed: ParsedReply) -> int | None:
    """Tokens of prompt and answer together; None if the server does not count them."""
    return None if parsed.completion_tokens is None else (parsed.prompt_tokens or 0) + parsed.completion_tokens


async def _ask_shortly(
    attempt: Callable[[Endpoint, bytes], Awaitable[object]], endpoint: Endpoint, payload: bytes
) -> object:
    """Make one attempt with a short question in place of the prompt."""
    return await attempt(endpoint, short_question(payload))
