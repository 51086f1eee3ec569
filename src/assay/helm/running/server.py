"""Has a server answer a HELM run's requests."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.interruption import run_stoppable
from assay.client.api_key import read_api_key
from assay.client.auto_concurrency import concurrency_of
from assay.client.completions import read_completions, read_echoed
from assay.client.echo_probe import common_source, find_logprob_source
from assay.client.openai import OpenAIModel
from assay.client.request_shape import shape_of
from assay.client.urls import endpoint_url, server_root
from assay.helm.running.bodies import body_of, check_supported, is_scoring
from assay.scheduling import ask_all
from assay.tasks.loglikelihood import LoglikelihoodBodies
from assay.types import Answer, CompleteSample, Failure, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.client.concurrency import Concurrency
    from assay.client.echo_probe import EchoTrial
    from assay.client.preflight import Preflight
    from assay.client.replies import ParsedReply
    from assay.helm.adaptation import Request
    from assay.journal import Journal
    from assay.progress import Progress
    from assay.types import Completion, LogprobSource, ModelSpec, Response
    from assay.types import Request as Call


class ServerSource:
    """Sends requests to an OpenAI-compatible server, or to several replicas.

    Args:
        spec: the server, the model, time-outs and attempts.
    """

    end_of_text: str | None = "<|endoftext|>"
    """HELM's client for OpenAI-compatible servers cuts answers at this text."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self._preflight: Preflight | None = None
        self._source: LogprobSource | None = None

    @property
    def returns_tokens(self) -> bool:
        """Chat answers have no tokens."""
        return self.spec.endpoint == "completions"

    @property
    def identity(self) -> Mapping[str, Any]:
        """The address, the endpoint, the model and changes of the request's shape."""
        spec = self.spec
        address = endpoint_url(spec.base_url, spec.endpoint)
        shape = shape_of(spec)
        shaped = {"shape": msgspec.to_builtins(shape)} if shape else {}
        return {"base_url": address, "endpoint": spec.endpoint, "model": spec.model, **shaped}

    def prepare(self, requests: Sequence[Request]) -> list[Request]:
        """Check that the server can be reached and supports the requests."""
        for request in requests:
            check_supported(request, self.spec.endpoint)
        with asyncio.Runner() as runner:
            self._preflight = preflight = run_stoppable(runner, self._run_preflight())
            if any(map(is_scoring, requests)):
                self._source = run_stoppable(runner, self._find_source(preflight))
        return list(requests)

    def payload(self, request: Request) -> bytes:
        """The request's body."""
        return body_of(request, self.spec.model, self.spec.endpoint, self._source)

    def answer(
        self, calls: Sequence[Call], requests: Sequence[Request], journal: Journal, progress: Progress
    ) -> list[Response]:
        """Send the requests that the journal has no response to."""
        with asyncio.Runner() as runner:
            return run_stoppable(runner, self._answer(calls, requests, journal, progress))

    async def _answer(
        self, calls: Sequence[Call], requests: Sequence[Request], journal: Journal, progress: Progress
    ) -> list[Response]:
        by_place: dict[int, Response] = {}

        def complete(samples: Sequence[CompleteSample]) -> None:
            by_place.update((sample.doc_id, responses[0]) for sample, responses in samples)

        for remark in self._preflight.remarks if self._preflight else ():
            progress.noted(remark)
        concurrency = concurrency_of(self.spec)
        async with self._open(self.spec, progress, concurrency) as model:
            await ask_all(
                (Sample(call.task, call.doc_id, None, [], [call]) for call in calls),
                _Asker(model, requests),
                journal,
                complete,
                concurrency=concurrency,
                observer=progress,
                load=model.load,
            )
        return [by_place[call.doc_id] for call in calls]

    async def _run_preflight(self) -> Preflight:
        async with self._open(self.spec, is_probe=True) as model:
            return await model.run_preflight()

    async def _find_source(self, preflight: Preflight) -> LogprobSource:
        """How the reachable servers return a prompt's log-probabilities; all in the same way."""

        def trial(way: LogprobSource) -> EchoTrial | None:
            return LoglikelihoodBodies(self.spec, None, way).trial()

        sources = {}
        for base_url in [url for url in self.spec.base_urls if server_root(url) in preflight.servers]:
            async with self._open(msgspec.structs.replace(self.spec, base_url=base_url, replicas=())) as model:
                sources[base_url] = await find_logprob_source(model, trial)
        return common_source(sources)

    def _open(
        self,
        spec: ModelSpec,
        progress: Progress | None = None,
        concurrency: Concurrency | None = None,
        *,
        is_probe: bool = False,
    ) -> OpenAIModel:
        tell = None if progress is None else progress.noted
        key = read_api_key(spec)
        return OpenAIModel(
            spec, api_key=key, concurrency=concurrency, preflight=self._preflight, tell=tell, is_probe=is_probe
        )


class _Asker:
    """Sends a request and reads all completions with their tokens."""

    def __init__(self, model: OpenAIModel, requests: Sequence[Request]) -> None:
        self._model = model
        self._requests = requests

    async def ask(self, call: Call) -> Response:
        """The answer, or the failure."""
        request = self._requests[call.doc_id]
        endpoint = self._model.spec.endpoint

        def read(body: bytes) -> tuple[ParsedReply, tuple[Completion, ...]]:
            if not is_scoring(request):
                return read_completions(body, endpoint, request.num_completions)
            parsed, echoed = read_echoed(body, request.prompt)
            return parsed, (echoed,)

        sent_at = int(time.time())
        reply = await self._model.timed_exchange(call.payload, read)
        if isinstance(reply, Failure):
            return reply
        parsed, completions = reply.content
        return Answer(
            text=completions[0].text,
            finish_reason=parsed.finish_reason,
            prompt_tokens=parsed.prompt_tokens,
            completion_tokens=parsed.completion_tokens,
            latency=reply.latency,
            attempts=reply.attempts,
            endpoint=reply.endpoint,
            completions=completions,
            sent_at=sent_at,
        )
