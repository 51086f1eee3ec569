"""Has a model in this process answer a HELM run's requests, and journals the answers."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from assay.helm.running.bodies import is_scoring
from assay.types import Answer, Failure, FailureCause, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.helm.adaptation import Request
    from assay.helm.engines.protocol import Engine
    from assay.journal import Journal
    from assay.progress import Progress
    from assay.types import Completion, Response
    from assay.types import Request as Call


class LocalSource:
    """Has an engine answer requests in batches, longest prompts first, so that a lack of memory shows at once.

    Args:
        engine: the model.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def end_of_text(self) -> str | None:
        """The text of the end-of-sequence token."""
        return self.engine.end_of_text

    @property
    def returns_tokens(self) -> bool:
        """Engines return all tokens."""
        return True

    @property
    def identity(self) -> Mapping[str, Any]:
        """The engine's."""
        return self.engine.identity

    def prepare(self, requests: Sequence[Request]) -> list[Request]:
        """Refuse requests that the engine cannot answer, and cut prompts to its context length."""
        for request in requests:
            self.engine.check_supported(request)
        # A prompt that is scored cannot be cut: the score is that of its end.
        return [request if is_scoring(request) else self.engine.truncate_prompt(request) for request in requests]

    def payload(self, request: Request) -> bytes:
        """The whole request as JSON."""
        return msgspec.json.encode(request.to_builtins())

    def answer(
        self, calls: Sequence[Call], requests: Sequence[Request], journal: Journal, progress: Progress
    ) -> list[Response]:
        """Answer the requests that the journal has no response to."""
        progress.limited(self.engine.batch_size)
        responses: list[Response | None] = [journal.lookup(call.key) for call in calls]
        missing = [index for index, response in enumerate(responses) if response is None]
        for call, response in zip(calls, responses, strict=True):
            if response is not None:
                progress.completed(_sample(call), [response])
        for index, response in self._generated(missing, requests):
            responses[index] = response
            journal.append(calls[index], response)
            progress.responded(calls[index], response)
            progress.completed(_sample(calls[index]), [response])
        return [response for response in responses if response is not None]

    def _generated(self, indices: Sequence[int], requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        fitting = []
        for index in indices:
            if (
                is_scoring(requests[index])
                and self.engine.count_tokens(requests[index].prompt) > self.engine.max_length
            ):
                yield index, self._too_long(requests[index])
            else:
                fitting.append(index)
        for batch in self._batches(fitting, requests):
            started, clock = int(time.time()), time.perf_counter()
            generated = self.engine.generate([requests[index] for index in batch])
            seconds = (time.perf_counter() - clock) / len(batch)
            for index, completions in zip(batch, generated, strict=True):
                yield index, _answer(completions, seconds, started)

    def _too_long(self, request: Request) -> Failure:
        num_tokens, max_length = self.engine.count_tokens(request.prompt), self.engine.max_length
        message = f"a prompt that is scored cannot be cut: it has {num_tokens} tokens, the model takes {max_length}"
        return Failure(cause=FailureCause.CONTEXT_TOO_LONG, message=message, attempts=0)

    def _batches(self, indices: Sequence[int], requests: Sequence[Request]) -> Iterator[Sequence[int]]:
        """Batches of requests that differ only in their prompts, sorted by length so that little is padded."""
        alike: dict[bytes, list[int]] = defaultdict(list)
        for index in indices:
            alike[self.payload(msgspec.structs.replace(requests[index], prompt=""))].append(index)
        for group in alike.values():
            lengths = {index: self.engine.count_tokens(requests[index].prompt) for index in group}
            group.sort(key=lambda index: -lengths[index])
            for first in range(0, len(group), self.engine.batch_size):
                yield group[first : first + self.engine.batch_size]


def _sample(call: Call) -> Sample:
    return Sample(call.task, call.doc_id, None, [], [call])


def _answer(completions: Sequence[Completion], seconds: float, started: int) -> Answer:
    first = completions[0]
    return Answer(
        text=first.text,
        finish_reason=first.finish_reason,
        completion_tokens=len(first.tokens) or None,
        latency=seconds,
        completions=tuple(completions),
        sent_at=started,
    )
