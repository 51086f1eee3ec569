"""Reads a finished run's samples: joins samples files, journal and results file.

Memory stays small however long prompts and answers are: the files are first scanned for the places of each document's
lines, then read document by document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from assay._util.batches import batches
from assay._util.json_text import plain
from assay._util.places import PlacesByDocument
from assay.errors import FileFormatError, UsageError
from assay.journal.by_document import ResponsesByDocument
from assay.results.reading import read_results
from assay.results.sample_files import first_text, reading, samples_file_of, time_stamp
from assay.results.scored_lines import OpenedLines, place_lines
from assay.runs.files import named_run, newest_results
from assay.runs.record import score_of
from assay.scoring.outcomes import fallbacks_in_config, outcome_of
from assay.types import Answer, Failure, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.journal.records import ResponseRecord
    from assay.results.scored_lines import Arguments, ScoredLine
    from assay.runs.record import Score
    from assay.types import Response


class Message(msgspec.Struct, frozen=True):
    """A turn of a conversation."""

    role: str
    content: str


_FIRST_TURN, _NEXT_TURN, _END = rb'["[{\"role\": ', rb"}, {\"role\": ", b'}]"]'
"""How lm-eval begins, separates and ends turns. No text in a turn can look like this: quotation marks in it are escaped
twice."""
_conversation = msgspec.json.Decoder(tuple[Message, ...])


class _Conversations:
    """Reads conversations as lm-eval writes them: a list with their JSON as text.

    Successive ones often begin with the same few-shot examples, which are then read only once.
    """

    def __init__(self) -> None:
        self._opening = b""
        """What came before the last turn of the conversation before."""
        self._examples: tuple[Message, ...] = ()
        """The turns in it."""

    def read(self, written: bytes) -> tuple[Message, ...]:
        """The turns of a conversation."""
        opening, boundary, last = written.rpartition(_NEXT_TURN)
        if not boundary:
            return _turns(written)
        if opening != self._opening:
            self._examples, self._opening = _turns(opening + _END), opening
        return *self._examples, *_turns(_FIRST_TURN + last)


def _turns(written: bytes) -> tuple[Message, ...]:
    (conversation,) = plain(written)
    try:
        return _conversation.decode(conversation)
    except (msgspec.DecodeError, UnicodeEncodeError):  # lone surrogates, contents in parts
        return tuple(Message(str(turn["role"]), first_text(turn["content"])) for turn in plain(conversation))


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt of one of a document's requests; the request's repeats share it."""

    content: str | tuple[Message, ...]
    """Plain text, or a conversation."""
    continuation: str | None = None
    """For a log-likelihood: the text whose probability was asked."""
    settings: dict[str, Any] = {}
    """For a generated answer: the task's generation settings, named as in lm-eval (``until``, ``max_gen_toks``, …)."""

    @property
    def text(self) -> str:
        """The whole prompt as plain text; a conversation's turns follow one another, without roles."""
        turns = self.content if isinstance(self.content, str) else "\n\n".join([turn.content for turn in self.content])
        return turns if self.continuation is None else turns + self.continuation


class Filtered(msgspec.Struct, frozen=True, kw_only=True):
    """A sample's extracted answer and scores under one filter."""

    extracted: str
    metrics: dict[str, Score]
    """By metric (without filter), its score; only metrics that are numbers or lists of verdicts."""
    outcome: Outcome


class RunSample(msgspec.Struct, frozen=True, kw_only=True):
    """A document with its requests, responses and scores."""

    task: str
    doc_id: int
    doc: msgspec.Raw
    """The document's JSON; ``null`` for failed samples, whose documents the run's files do not have."""
    target: str
    prompts: tuple[Prompt, ...]
    """One for each request; none for failed samples."""
    responses: tuple[Response, ...]
    """In the order of the requests, with each request's repeats together. Without a journal (lm-eval's runs) they have
    only texts and log-probabilities."""
    times: tuple[float, ...] = ()
    """When each response was recorded, in seconds since the epoch; empty without a journal."""
    filters: dict[str, Filtered]
    """By filter; empty for failed samples."""
    failure: Failure | None = None
    """Why the sample has no score."""
    doc_hash: str = ""
    prompt_hash: str = ""
    target_hash: str = ""
    """lm-eval's SHA-256 hashes, hexadecimal; empty for failed samples."""

    @property
    def document(self) -> Any:
        """The document as plain data."""
        return plain(self.doc)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The responses that are answers."""
        return tuple([response for response in self.responses if isinstance(response, Answer)])


class RunSamples:
    """A run's samples: iterate over all, or look one up. Use it in a ``with`` statement.

    Args:
        results_file: Assay's or lm-eval's; the samples files and the journal are looked for beside it.
        places: by task, where each document's lines begin in its samples file; None: the files are searched for them.

    Raises:
        FileFormatError: a file is missing or damaged.
        JournalError: the run's journal is there and cannot be read.
    """

    def __init__(self, results_file: Path, places: Mapping[str, PlacesByDocument] | None = None) -> None:
        self.file = results_file
        self.document = read_results(results_file)
        """Its results file."""
        configs, results = self.document.configs, self.document.results
        self._configs = {name: config for name, config in configs.items() if name in results}
        self._failures = {
            (failed.task, failed.doc_id): Failure(cause=failed.cause, message=failed.message)
            for failed in self.document.additions.failures or ()
        }
        self._fallbacks = {name: self._fallbacks_of(name) for name in self._configs}
        self._samples_files: dict[str, Path] = {}
        self._lines = dict(places or {})
        """By task, the places of its documents' lines."""
        self._conversations = _Conversations()
        self._files = ExitStack()
        self._opened = self._files.enter_context(OpenedLines())
        journal = self.journal
        self._responses = None if journal is None else self._files.enter_context(ResponsesByDocument(journal))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, in the results file's order."""
        return tuple(self._configs)

    @property
    def journal(self) -> Path | None:
        """The run's journal; None if there is none."""
        rescored, name = self.document.additions.rescored, self.document.provenance.journal
        if rescored is not None and rescored.journal:
            path = self.file.parent / rescored.journal
            return path if path.is_file() else None
        path = self.file.parent / "journal" / Path(str(name)).name
        return path if name and path.is_file() else None

    def doc_ids(self, task: str) -> tuple[int, ...]:
        """A task's documents, failed ones included, in order."""
        failed = (doc_id for name, doc_id in self._failures if name == task)
        return tuple(sorted({*self._places(task).documents(), *failed}))

    def has_failed(self, task: str, doc_id: int) -> bool:
        """Whether the document failed and has no score."""
        return (task, doc_id) in self._failures

    def sample(self, task: str, doc_id: int) -> RunSample:
        """One sample.

        Raises:
            UsageError: the run has no such task or document.
        """
        if task not in self._configs:
            raise UsageError(f"{self.file} has no task '{task}'; it has {', '.join(self._configs)}")
        if doc_id in self._places(task) or (task, doc_id) in self._failures:
            return self._read_samples(task, [doc_id])[0]
        raise UsageError(f"{self.file} has no document {doc_id} of '{task}'; it has {_span(self.doc_ids(task))}")

    def __iter__(self) -> Iterator[RunSample]:
        """All samples, task by task in document order."""
        return self.of_tasks(self._configs)

    def of_tasks(self, tasks: Iterable[str]) -> Iterator[RunSample]:
        """All samples of some tasks, task by task in document order."""
        for task in tasks:
            for doc_ids in batches(self.doc_ids(task)):
                yield from self._read_samples(task, doc_ids)

    def _read_samples(self, task: str, doc_ids: Sequence[int]) -> list[RunSample]:
        """Read some samples of a task: first their lines, then their records in the journal, then join them."""
        lines = [self._lines_of(task, doc_id) for doc_id in doc_ids]
        records = [self._records(task, doc_id) for doc_id in doc_ids]
        return [
            self._scored(task, doc_id, found, recorded) if found else self._failed(task, doc_id, recorded)
            for doc_id, found, recorded in zip(doc_ids, lines, records, strict=True)
        ]

    def _places(self, task: str) -> PlacesByDocument:
        if task not in self._lines:
            places = PlacesByDocument()
            file = self._samples_file(task)
            if file.exists() or not self.document.scored_nothing(task):
                place_lines(file, places)
            self._lines[task] = places
        return self._lines[task]

    def _samples_file(self, task: str) -> Path:
        if task not in self._samples_files:
            self._samples_files[task] = samples_file_of(self.file, task)
        return self._samples_files[task]

    def _lines_of(self, task: str, doc_id: int) -> list[ScoredLine]:
        file = self._samples_file(task)
        with reading(file, f"document {doc_id}"):
            return [self._opened.line(file, offset) for offset in self._places(task).of(doc_id)]

    def _records(self, task: str, doc_id: int) -> list[ResponseRecord]:
        return [] if self._responses is None else self._responses.records(task, doc_id)

    def _scored(
        self, task: str, doc_id: int, lines: Sequence[ScoredLine], records: Sequence[ResponseRecord]
    ) -> RunSample:
        with reading(self._samples_file(task), f"document {doc_id}"):
            first = lines[0]
            responses = self._responses_to(task, first, records)
            answers = [response for response in responses if isinstance(response, Answer)]
            return RunSample(
                task=task,
                doc_id=doc_id,
                doc=first.doc,
                target=first_text(first.target),
                prompts=tuple([self._prompt(arguments) for arguments in first.arguments.values()]),
                responses=responses,
                times=tuple([record.time for record in records]),
                filters={line.filter: self._filtered(task, line, answers) for line in lines},
                doc_hash=first.doc_hash,
                prompt_hash=first.prompt_hash,
                target_hash=first.target_hash,
            )

    def _failed(self, task: str, doc_id: int, records: Sequence[ResponseRecord]) -> RunSample:
        return RunSample(
            task=task,
            doc_id=doc_id,
            doc=msgspec.Raw(b"null"),
            target="",
            prompts=(),
            responses=tuple([record.response for record in records]),
            times=tuple([record.time for record in records]),
            filters={},
            failure=self._failures[task, doc_id],
        )

    def _responses_to(self, task: str, line: ScoredLine, records: Sequence[ResponseRecord]) -> tuple[Response, ...]:
        if records:
            return tuple([record.response for record in records])
        if line.resps is msgspec.UNSET:
            raise KeyError("resps")
        kind = self._configs[task].get("output_type")
        return tuple(_answer(kind, said) for repeats in plain(line.resps) for said in repeats)

    def _filtered(self, task: str, line: ScoredLine, answers: Sequence[Answer]) -> Filtered:
        scores = {metric: score_of(value) for metric, value in line.values().items()}
        return Filtered(
            extracted=first_text(line.filtered_resps),
            metrics={metric: score for metric, score in scores.items() if score is not None},
            outcome=outcome_of(answers, line.filtered_resps, self._fallbacks[task].get(line.filter, ())),
        )

    def _prompt(self, arguments: Arguments) -> Prompt:
        second = arguments.arg_1
        return Prompt(
            content=self._content(bytes(arguments.arg_0)),
            continuation=second if isinstance(second, str) else None,
            settings=second if isinstance(second, dict) else {},
        )

    def _content(self, written: bytes) -> str | tuple[Message, ...]:
        if written.startswith(b"["):
            return self._conversations.read(written)
        text = plain(written)
        return text if isinstance(text, str) else str(text)

    def _fallbacks_of(self, task: str) -> dict[str, Sequence[Any]]:
        recorded = (self.document.additions.fallbacks or {}).get(task)
        return dict(recorded) if recorded is not None else dict(fallbacks_in_config(self._configs[task]))


SampleReader = Callable[[RunSamples], Iterator[RunSample]]
"""Iterates over a run's samples. A caller that needs the samples itself passes one, so that they are read only once."""


def results_file_of(run: str | Path) -> Path:
    """The results file of a run named by that file, by one of its samples files, or by a folder (its newest run).

    Raises:
        FileFormatError: there is no such run, or the name fits several.
    """
    place = named_run(run)
    if place.is_dir():
        return newest_results(place)
    if place.name.endswith(".jsonl") and (stamp := time_stamp(place)):
        place = place.with_name(f"results_{stamp}.json")
    if not place.exists():
        raise FileFormatError(f"there is no run {run}: name a results file or a folder of results")
    return place


def _answer(kind: str | None, said: Any) -> Answer:
    """Read an answer as lm-eval writes it: in its files, numbers are text."""
    if kind == "loglikelihood_rolling":
        return Answer(text=None, logprob=float(first_text(said)))
    if isinstance(said, list) and len(said) == 2:
        logprob, is_greedy = said
        return Answer(text=None, logprob=float(logprob), is_greedy=is_greedy == "True")
    return Answer(text=first_text(said))


def _span(doc_ids: Sequence[int]) -> str:
    if not doc_ids:
        return "none"
    return f"{len(doc_ids)}, from {doc_ids[0]} to {doc_ids[-1]}"
