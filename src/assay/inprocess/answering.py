"""A run's requests answered by an engine in this process: taken one by one, given to it in batches.

What is waiting is sorted: requests alike, those of one context together, the longest first, so that little is padded
and a batch that is too large shows at once. A batch that does not fit into memory comes again in halves.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.concurrency import Concurrency
from assay.client.thinking import without_thinking
from assay.errors import AssayError
from assay.inprocess.engine import Generated, Generation, GenerationPrompt, Scored, ScoredPrompt
from assay.types import Answer, Failure, FailureCause, TokenSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from assay.inprocess.engine import Engine
    from assay.types import ModelSpec, Request, Response

_AUTO_ROWS = 64
_AUTO_TOKENS = 16_384
"""Tokens of a batch, padding and what is to be generated included, where the batch size is ``auto``."""
_WINDOW = 8
"""Batches' worth of requests that wait, to be sorted."""
_SETTLED = 0.002
"""Seconds without a new request after which a batch begins."""
_ARE_NOT_SETTINGS = ("model", "prompt", "max_tokens", "temperature", "stop", "seed", "do_sample")


def local_concurrency(model: ModelSpec, *, stops_early: bool) -> Concurrency:
    """How many requests wait at once: enough to sort, or one batch where answers decide what is asked next."""
    rows = _rows_of(model)
    return Concurrency(rows if stops_early else _WINDOW * rows)


def _rows_of(model: ModelSpec) -> int:
    size = "auto" if model.local is None else model.local.batch_size
    return _AUTO_ROWS if size == "auto" else size


@dataclass(frozen=True)
class _Waiting:
    """A request that waits for its answer."""

    prompt: GenerationPrompt | ScoredPrompt
    how: Generation | None
    """None: it is scored."""
    answer: asyncio.Future[Response]

    @property
    def group(self) -> bytes:
        """Equal for those that may be in one batch."""
        how = self.how
        return b"" if how is None else msgspec.json.encode([how.max_tokens, how.stop, how.temperature, how.others])

    @property
    def size(self) -> int:
        """Its tokens, with those to be generated."""
        if isinstance(self.prompt, GenerationPrompt):
            return len(self.prompt.ids) + (0 if self.how is None else self.how.max_tokens)
        return len(self.prompt.context) + len(self.prompt.continuation)

    @property
    def order(self) -> tuple[Any, ...]:
        """Prompts that share a context, whose choices are of different lengths, stand together."""
        if isinstance(self.prompt, GenerationPrompt):
            return (-len(self.prompt.ids),)
        return (-len(self.prompt.context), self.prompt.context, -len(self.prompt.continuation))


class InProcessModel:
    """Answers requests by an engine; what an engine cannot answer is a failure.

    Args:
        engine: the model.
        spec: how it is asked.
        tell: is told in a line when a batch was too large.
    """

    members = ()
    load = None

    def __init__(self, engine: Engine, spec: ModelSpec, tell: Callable[[str], None] = lambda _: None) -> None:
        self._engine = engine
        self._spec = spec
        self._tell = tell
        self._rows = _rows_of(spec)
        self._max_tokens = _AUTO_TOKENS if spec.local is None or spec.local.batch_size == "auto" else None
        self._waiting: list[_Waiting] = []
        self._has_some = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> InProcessModel:
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.cancel()

    async def ask(self, request: Request) -> Response:
        """Answer a request; without an answer, return the failure."""
        waiting = self._read(request)
        if isinstance(waiting, Failure):
            return waiting
        self._waiting.append(waiting)
        self._has_some.set()
        return await waiting.answer

    def _read(self, request: Request) -> _Waiting | Failure:
        body = msgspec.json.decode(request.payload)
        ids = tuple(body["prompt"][0])
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        if isinstance(request.scored, TokenSpan):
            start = request.scored.start
            if start < 1 or start >= len(ids):
                message = (
                    f"a text of {request.scored.stop - start} tokens cannot be scored whole: the model's context length"
                    f" is {self._engine.max_length} tokens"
                )
                return Failure(cause=FailureCause.CONTEXT_TOO_LONG, message=message, attempts=0)
            return _Waiting(ScoredPrompt(ids[:start], ids[start:]), None, answer)
        seed = hashlib.sha256(msgspec.json.encode([body.get("seed"), request.repeat, ids])).digest()
        return _Waiting(GenerationPrompt(ids, int.from_bytes(seed[:7])), _generation(body), answer)

    async def _work(self) -> None:
        while True:
            await self._has_some.wait()
            await self._settle()
            batch = self._next_batch()
            try:
                answers = await asyncio.to_thread(self._answers, batch)
            except Exception as error:  # it ends the run, of whose requests one is told
                batch[0].answer.set_exception(error)
                return
            for waiting, answer in zip(batch, answers, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)

    async def _settle(self) -> None:
        """Wait until no more requests arrive, so that the batch is chosen among all there can be."""
        before = 0
        while len(self._waiting) > before:
            before = len(self._waiting)
            await asyncio.sleep(_SETTLED)

    def _next_batch(self) -> list[_Waiting]:
        self._waiting.sort(key=lambda waiting: (waiting.group, waiting.order))
        first = self._waiting[0]
        size, longest = 0, 0
        for waiting in self._waiting[: self._rows]:
            if waiting.group != first.group:
                break
            longest = max(longest, waiting.size)
            if size and self._max_tokens is not None and (size + 1) * longest > self._max_tokens:
                break
            size += 1
        batch, self._waiting = self._waiting[:size], self._waiting[size:]
        if not self._waiting:
            self._has_some.clear()
        return batch

    def _answers(self, batch: Sequence[_Waiting]) -> list[Response]:
        """Ask the engine, in a thread of its own."""
        began = time.perf_counter()
        try:
            raw = self._ask(batch)
        except MemoryError as error:
            return self._in_halves(batch, error)
        except AssayError:
            raise
        except Exception as error:  # an engine is foreign code; its failure is a failure of these requests
            message = f"the engine failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            return [Failure(cause=FailureCause.SERVER_ERROR, message=message)] * len(batch)
        seconds = (time.perf_counter() - began) / len(batch)
        return [self._response(waiting, one, seconds) for waiting, one in zip(batch, raw, strict=True)]

    def _ask(self, batch: Sequence[_Waiting]) -> Sequence[Generated | Scored]:
        how = batch[0].how
        if how is None:
            return self._engine.score([one.prompt for one in batch if isinstance(one.prompt, ScoredPrompt)])
        return self._engine.generate([one.prompt for one in batch if isinstance(one.prompt, GenerationPrompt)], how)

    def _in_halves(self, batch: Sequence[_Waiting], error: MemoryError) -> list[Response]:
        if len(batch) == 1:
            message = f"one request of {batch[0].size} tokens does not fit into memory: {error}"[:300]
            return [Failure(cause=FailureCause.SERVER_ERROR, message=message)]
        self._rows = min(self._rows, len(batch) // 2)
        self._tell(f"a batch of {len(batch)} does not fit into memory; the run goes on with batches of {self._rows}")
        middle = len(batch) // 2
        return [*self._answers(batch[:middle]), *self._answers(batch[middle:])]

    def _response(self, waiting: _Waiting, raw: Generated | Scored, seconds: float) -> Response:
        prompt_tokens = len(waiting.prompt.ids) if isinstance(waiting.prompt, GenerationPrompt) else waiting.size
        if isinstance(raw, Scored):
            if not math.isfinite(raw.logprob):
                message = f"the model gives a log-probability of {raw.logprob}"
                return Failure(cause=FailureCause.SERVER_ERROR, message=message)
            return Answer(
                text=None, prompt_tokens=prompt_tokens, latency=seconds, logprob=raw.logprob, is_greedy=raw.is_greedy
            )
        text, reasoning = without_thinking(raw.text, None, self._spec.think_end_token)
        return Answer(
            text=text,
            reasoning=reasoning,
            finish_reason="stop" if raw.is_finished else "length",
            prompt_tokens=prompt_tokens,
            completion_tokens=raw.num_tokens,
            latency=seconds,
        )


def _generation(body: dict[str, Any]) -> Generation:
    """How lm-eval's ``hf`` generates with a request's settings."""
    is_greedy = body.get("do_sample") is False
    stop = body.get("stop") or []
    return Generation(
        max_tokens=int(body["max_tokens"]),
        stop=tuple([stop] if isinstance(stop, str) else stop),
        temperature=0.0 if is_greedy else float(body.get("temperature") or 0),
        others={name: value for name, value in body.items() if name not in _ARE_NOT_SETTINGS},
    )
