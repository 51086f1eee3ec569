"""A model in this process as the source of a HELM run's answers."""

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
    """Has an engine answer batches of requests, longest prompts first, so that what does not fit shows at once.

    Args:
        engine: the model.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def end_of_text(self) -> str | None:
        """The text with which the model ends."""
        return self.engine.end_of_text

    @property
    def window(self) -> int | None:
        """The model's context length."""
        return self.engine.window

    @property
    def gives_tokens(self) -> bool:
        """Engines tell all tokens."""
        return True

    @property
    def identity(self) -> Mapping[str, Any]:
        """The engine's."""
        return self.engine.identity

    def prepare(self, requests: Sequence[Request]) -> list[Request]:
        """Refuse what the engine cannot answer, and cut prompts to its window."""
        for request in requests:
            self.engine.refuse_impossible(request)
        # Of a prompt that is scored the end is what counts.
        return [request if is_scoring(request) else self.engine.fitted(request) for request in requests]

    def payload(self, request: Request) -> bytes:
        """The whole request."""
        return msgspec.json.encode(request.to_builtins())

    def answer(
        self, calls: Sequence[Call], requests: Sequence[Request], journal: Journal, progress: Progress
    ) -> list[Response]:
        """Answer what the journal does not hold."""
        progress.limited(self.engine.batch_size)
        responses: list[Response | None] = [journal.lookup(call.key) for call in calls]
        missing = [place for place, response in enumerate(responses) if response is None]
        for call, response in zip(calls, responses, strict=True):
            if response is not None:
                progress.completed(_sample(call), [response])
        for place, response in self._generated(missing, requests):
            responses[place] = response
            journal.append(calls[place], response)
            progress.responded(calls[place], response)
            progress.completed(_sample(calls[place]), [response])
        return [response for response in responses if response is not None]

    def _generated(self, places: Sequence[int], requests: Sequence[Request]) -> Iterator[tuple[int, Response]]:
        fitting = []
        for place in places:
            if is_scoring(requests[place]) and self.engine.length(requests[place].prompt) > self.engine.window:
                yield place, self._too_long(requests[place])
            else:
                fitting.append(place)
        for batch in self._batches(fitting, requests):
            started, clock = int(time.time()), time.perf_counter()
            generated = self.engine.generate([requests[place] for place in batch])
            seconds = (time.perf_counter() - clock) / len(batch)
            for place, completions in zip(batch, generated, strict=True):
                yield place, _answer(completions, seconds, started)

    def _too_long(self, request: Request) -> Failure:
        length, window = self.engine.length(request.prompt), self.engine.window
        message = f"the prompt has {length} tokens, the model's window {window}, and one that is scored cannot be cut"
        return Failure(cause=FailureCause.CONTEXT_TOO_LONG, message=message, attempts=0)

    def _batches(self, places: Sequence[int], requests: Sequence[Request]) -> Iterator[Sequence[int]]:
        """Requests that differ in their prompts only, and in these as little as possible in length."""
        alike: dict[bytes, list[int]] = defaultdict(list)
        for place in places:
            alike[self.payload(msgspec.structs.replace(requests[place], prompt=""))].append(place)
        for group in alike.values():
            lengths = {place: self.engine.length(requests[place].prompt) for place in group}
            group.sort(key=lambda place: -lengths[place])
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
