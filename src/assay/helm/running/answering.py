"""Answers a HELM run's requests with a server or a model in this process, and journals every answer."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from assay._util.interruption import uninterrupted
from assay.helm.running.results import result_of
from assay.journal import Journal
from assay.journal.finishing import finish_journal
from assay.tasks.requests import request_key
from assay.types import Answer, Failure
from assay.types import Request as Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from assay.helm.adaptation import Request, RequestState, ScenarioState
    from assay.helm.run_spec import RunSpec
    from assay.progress import Progress
    from assay.types import Response


class Source(Protocol):
    """Answers requests: a server, or a model in this process."""

    @property
    def end_of_text(self) -> str | None:
        """The text of the end-of-sequence token, if answers may contain it."""

    @property
    def returns_tokens(self) -> bool:
        """Whether answers come with their tokens and log-probabilities."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that can change the answers, as JSON values without secrets."""

    def prepare(self, requests: Sequence[Request]) -> list[Request]:
        """The requests as the model gets them: with prompts cut to its context length, if that is known.

        Raises:
            UsageError: the source cannot answer some of them.
            UnjudgeableError: the server cannot be reached.
        """

    def payload(self, request: Request) -> bytes:
        """The part of a request that decides its answer."""

    def answer(
        self, calls: Sequence[Call], requests: Sequence[Request], journal: Journal, progress: Progress
    ) -> list[Response]:
        """The response to each request, in order; requests whose response is in the journal are not sent again.

        Args:
            calls: the requests with their payloads.
            requests: the same requests as HELM's records.
            journal: receives each response as it arrives.
            progress: is notified of each response.
        """


@dataclass(frozen=True)
class Answered:
    """A run whose requests have been sent to a model."""

    state: ScenarioState
    failures: Mapping[int, Failure]
    """Why requests have no result, by their index in the state."""
    num_truncated: int
    """Number of prompts that were cut to the model's context length."""
    num_empty: int
    """Number of answers without text; they are scored as empty."""
    journal: Path

    def finish(self) -> None:
        """Mark the run as finished, after its outcome was reported. Until then the same call sends nothing again."""
        with uninterrupted():
            finish_journal(self.journal, failed=len(self.failures))


@contextmanager
def answer_requests(
    run_spec: RunSpec, state: ScenarioState, source: Source, journals: Path, progress: Progress, *, fresh: bool = False
) -> Iterator[Answered]:
    """Answer a run's requests; while the block runs, no other process can resume the run.

    Args:
        run_spec: the run.
        state: its requests; existing results are replaced.
        source: answers the requests.
        journals: the folder of journals.
        progress: is notified of what happens.
        fresh: start from the beginning even if an interrupted run could be resumed.

    Raises:
        UsageError: the source cannot answer some request.
        UnjudgeableError: the server cannot be reached, or refuses everything.
        JournalError: the journal of an interrupted run cannot be used.
    """
    asked = source.prepare([one.request for one in state.request_states])
    calls = [_call(run_spec.name, index, source.payload(request)) for index, request in enumerate(asked)]
    with _open_journal(run_spec, calls, source, journals, fresh) as journal:
        progress.loaded({run_spec.name: len(calls)}, journal.answers, journal.path)
        responses = source.answer(calls, asked, journal, progress)
        states = list(state.request_states)
        failures = {}
        for index, response in enumerate(responses):
            states[index] = _with_response(states[index], asked[index], response, source)
            if isinstance(response, Failure):
                failures[index] = response
        cut = sum(
            new.prompt_truncated > old.prompt_truncated for new, old in zip(states, state.request_states, strict=True)
        )
        empty = sum(_is_empty(response, request) for response, request in zip(responses, asked, strict=True))
        yield Answered(msgspec.structs.replace(state, request_states=states), failures, cut, empty, journal.path)


def _is_empty(response: Response, request: Request) -> bool:
    if isinstance(response, Failure) or not request.max_tokens:
        return False
    return not any(completion.text for completion in response.completions)


def _call(run: str, index: int, payload: bytes) -> Call:
    key = request_key((run, index, 0, 0), "helm", payload)
    return Call(run, index, 0, 0, "generate_until", payload, key)


def _open_journal(run_spec: RunSpec, calls: Sequence[Call], source: Source, journals: Path, fresh: bool) -> Journal:
    digest = hashlib.sha256(msgspec.json.encode((run_spec.name, source.identity), order="sorted"))
    for call in calls:
        digest.update(call.key.encode("ascii"))
    specification = {"tasks": [run_spec.name], "model": dict(source.identity)}
    return Journal.open(journals, fingerprint=digest.hexdigest(), specification=specification, fresh=fresh)


def _with_response(state: RequestState, asked: Request, response: Response, source: Source) -> RequestState:
    result = result_of(response, asked, source.end_of_text) if isinstance(response, Answer) else None
    cut = asked.prompt != state.request.prompt
    return msgspec.structs.replace(
        state, request=asked, result=result, prompt_truncated=state.prompt_truncated or cut, annotations=None
    )
