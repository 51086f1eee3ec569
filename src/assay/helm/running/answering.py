"""A HELM run's requests are answered, by whatever answers them, with a durable record between."""

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
    """Where answers come from: a server, or a model in this process."""

    @property
    def end_of_text(self) -> str | None:
        """The text with which the model ends, where it may be part of its answers."""

    @property
    def window(self) -> int | None:
        """The model's context length in tokens, if it is known."""

    @property
    def gives_tokens(self) -> bool:
        """Whether answers come with their tokens and log-probabilities."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that tells it from sources whose answers might differ. JSON-able, without secrets."""

    def prepare(self, requests: Sequence[Request]) -> list[Request]:
        """The requests as they are put to the model: with prompts that fit into its window, if that is known.

        Raises:
            UsageError: some of them cannot be answered.
            UnjudgeableError: the server is not there.
        """

    def payload(self, request: Request) -> bytes:
        """All of a request that decides its answer."""

    def answer(
        self, calls: Sequence[Call], requests: Sequence[Request], journal: Journal, progress: Progress
    ) -> list[Response]:
        """What became of each request, in order; those that the journal has answers to are not asked again.

        Args:
            calls: the requests with their payloads.
            requests: the same ones as HELM's.
            journal: keeps each response as it comes.
            progress: is told of each.
        """


@dataclass(frozen=True)
class Answered:
    """A run whose requests have been put to a model."""

    state: ScenarioState
    failures: Mapping[int, Failure]
    """Why requests have no result, by their place in the state."""
    num_cut: int
    """Prompts that were cut to the model's window."""
    num_empty: int
    """Answers without a text; they are scored as such."""
    journal: Path

    def finish(self) -> None:
        """Let the run count as finished, once its outcome is told: until then the same call asks nothing again."""
        with uninterrupted():
            finish_journal(self.journal, failed=len(self.failures))


@contextmanager
def answered(
    run_spec: RunSpec, state: ScenarioState, source: Source, journals: Path, progress: Progress, *, fresh: bool = False
) -> Iterator[Answered]:
    """A run with its requests answered; no other process takes it up while the block runs.

    Args:
        run_spec: the run.
        state: its requests; results that they have are replaced.
        source: answers them.
        journals: the folder of journals.
        progress: is told what happens.
        fresh: start anew even if an interrupted run could be gone on with.

    Raises:
        UsageError: some request cannot be answered by this source.
        UnjudgeableError: the server cannot be reached, or refuses everything.
        JournalError: the record of an interrupted run cannot be used.
    """
    asked = source.prepare([one.request for one in state.request_states])
    calls = [_call(run_spec.name, place, source.payload(request)) for place, request in enumerate(asked)]
    with _open_journal(run_spec, calls, source, journals, fresh) as journal:
        progress.loaded({run_spec.name: len(calls)}, journal.answers, journal.path)
        responses = source.answer(calls, asked, journal, progress)
        states = list(state.request_states)
        failures = {}
        for place, response in enumerate(responses):
            states[place] = _with_response(states[place], asked[place], response, source)
            if isinstance(response, Failure):
                failures[place] = response
        cut = sum(
            new.prompt_truncated > old.prompt_truncated for new, old in zip(states, state.request_states, strict=True)
        )
        empty = sum(_is_empty(response, request) for response, request in zip(responses, asked, strict=True))
        yield Answered(msgspec.structs.replace(state, request_states=states), failures, cut, empty, journal.path)


def _is_empty(response: Response, request: Request) -> bool:
    if isinstance(response, Failure) or not request.max_tokens:
        return False
    return not any(completion.text for completion in response.completions)


def _call(run: str, place: int, payload: bytes) -> Call:
    key = request_key((run, place, 0, 0), "helm", payload)
    return Call(run, place, 0, 0, "generate_until", payload, key)


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
