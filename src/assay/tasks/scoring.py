"""Scores samples as their answers arrive, by lm-eval's own filters and metrics.

Arrival order changes nothing: values are kept by document and put in order at the end, and each sample is scored
under a random state of its own, because some of lm-eval's scorers draw random numbers.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections import Counter
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec
from lm_eval.utils import handle_non_serializable, sanitize_list

from assay.types import Answer, Failure, FailureCause, Outcome, Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from assay.deadline import Deadline
    from assay.spool import Spool
    from assay.tasks.requests import Sample

_NULL_CONTENT = ""
"""What lm-eval scores in place of null content."""


class FailedSample(msgspec.Struct, frozen=True):
    """A sample without a score, and why."""

    task: str
    doc_id: int
    cause: FailureCause
    message: str


class TaskScores:
    """Everything known about one task's samples so far."""

    def __init__(self, name: str, task: Any, spool: Spool, deadline: Deadline) -> None:
        self.name = name
        self.task = task
        self.failed: dict[int, FailedSample] = {}
        self.outcomes: dict[str, Counter[Outcome]] = {}
        """For every filter, how many samples ended how."""
        self._spool = spool
        self._deadline = deadline
        self._random_state = _own_random_state if _may_draw_random_numbers(task) else _shared_random_state
        self._filters = {ensemble.name: _fallbacks(ensemble) for ensemble in _filter_ensembles(task)}
        self._metrics: dict[str, dict[int, dict[str, Any]]] = {}
        self._lines: dict[str, dict[int, int]] = {}
        self._hashes: dict[int, bytes] = {}

    @property
    def scored(self) -> int:
        """How many samples have scores."""
        return len(self._hashes)

    @property
    def done(self) -> int:
        """How many samples have come to an end, scored or failed."""
        return len(self._hashes) + len(self.failed)

    @property
    def filters(self) -> list[str]:
        """The filters' names, in the task's order."""
        return list(self._filters)

    def outcome_counts(self, filter_name: str) -> dict[Outcome, int]:
        """How many samples ended how under one filter, failed ones included."""
        counts = Counter(self.outcomes.get(filter_name, {}))
        counts[Outcome.FAILED] = len(self.failed)
        return {outcome: counts[outcome] for outcome in Outcome}

    def receive(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Score `sample`, whose requests were answered by `responses` (same order)."""
        failure = next((response for response in responses if isinstance(response, Failure)), None)
        if failure is not None:
            self._fail(sample, failure.cause, failure.message)
            return
        answers = [response for response in responses if isinstance(response, Answer)]
        try:
            with self._deadline, self._random_state(sample):
                self._score(sample, answers)
        except Exception as error:  # a scorer is foreign code: whatever it raises concerns this one sample
            reason = f"the task's scorer raised {type(error).__name__}: {error}"
            self._fail(sample, FailureCause.UNSCORABLE, reason)

    def _fail(self, sample: Sample, cause: FailureCause, message: str) -> None:
        self.failed[sample.doc_id] = FailedSample(self.name, sample.doc_id, cause, message)

    def _score(self, sample: Sample, answers: Sequence[Answer]) -> None:
        _fill_in(sample, answers)
        for ensemble in _filter_ensembles(self.task):
            ensemble.apply(sample.instances)
        document = _Document.of(sample, self.task)
        scored = {}
        for name in sample.instances[0].filtered_resps:
            filtered = [instance.filtered_resps[name] for instance in sample.instances]
            metrics = self.task.process_results(_copy(sample.doc), filtered)
            scored[name] = (filtered, metrics, document.line(name, filtered, metrics))
        for name, (filtered, metrics, line) in scored.items():
            self._metrics.setdefault(name, {})[sample.doc_id] = metrics
            self._lines.setdefault(name, {})[sample.doc_id] = self._spool.append(line)
            outcome = _outcome(answers, filtered, self._filters.get(name, ()))
            self.outcomes.setdefault(name, Counter())[outcome] += 1
        self._hashes[sample.doc_id] = document.hashes

    def failed_samples(self) -> list[FailedSample]:
        """Samples without a score, in document order."""
        return [self.failed[doc_id] for doc_id in sorted(self.failed)]

    def raw_metrics(self) -> dict[tuple[str, str], list[Any]]:
        """Values by (metric, filter), in document order: what lm-eval's aggregation takes."""
        values: dict[tuple[str, str], list[Any]] = {}
        for name in self._ordered(self._metrics):
            for doc_id in sorted(self._metrics[name]):
                for metric, value in self._metrics[name][doc_id].items():
                    values.setdefault((metric, name), []).append(value)
        return values

    def values_by_document(self, metric: str, filter_name: str) -> dict[int, Any]:
        """One metric's value for each scored document, in document order."""
        scored = self._metrics.get(filter_name, {})
        return {doc_id: scored[doc_id][metric] for doc_id in sorted(scored) if metric in scored[doc_id]}

    def sample_lines(self) -> Iterator[bytes]:
        """Lines of lm-eval's samples file: filter by filter, each in document order."""
        for name in self._ordered(self._lines):
            for doc_id in sorted(self._lines[name]):
                yield self._spool.read(self._lines[name][doc_id])

    def task_hash(self) -> str:
        """lm-eval's ``task_hashes`` entry: a hash of every sample line's document, prompt and target."""
        digest = hashlib.sha256()
        in_order = b"".join(self._hashes[doc_id].hex().encode() for doc_id in sorted(self._hashes))
        for _ in self._lines:
            digest.update(in_order)
        return digest.hexdigest()

    def _ordered(self, by_filter: dict[str, Any]) -> list[str]:
        return [name for name in self._filters if name in by_filter]


class _Document(msgspec.Struct):
    """The part of a samples line that is the same for every filter."""

    head: str
    """The line's JSON up to and with ``resps``, without the closing brace."""
    hashes: bytes
    """SHA-256 of document, prompt and target, one after another."""

    @classmethod
    def of(cls, sample: Sample, task: Any) -> _Document:
        target = str(task.doc_to_target(sample.doc))
        doc = _json(sample.instances[0].doc)
        prompt = sample.instances[0].arguments[0]
        arguments = {
            f"gen_args_{number}": {f"arg_{place}": argument for place, argument in enumerate(instance.args)}
            for number, instance in enumerate(sample.instances)
        }
        responses = sanitize_list([instance.resps for instance in sample.instances])
        head = (
            f'{{"doc_id": {sample.doc_id}, "doc": {doc}, "target": {_json(target)}, '
            f'"arguments": {_json(arguments)}, "resps": {_json(responses)}'
        )
        hashed = (_indented(doc, sample.instances[0].doc), prompt.encode("utf-8"), target.encode("utf-8"))
        return cls(head, b"".join(hashlib.sha256(text).digest() for text in hashed))

    def line(self, filter_name: str, filtered: list[Any], metrics: dict[str, Any]) -> bytes:
        doc_hash, prompt_hash, target_hash = (self.hashes[start : start + 32].hex() for start in (0, 32, 64))
        rest = {
            "filtered_resps": sanitize_list(filtered),
            "filter": filter_name,
            "metrics": list(metrics),
            "doc_hash": doc_hash,
            "prompt_hash": prompt_hash,
            "target_hash": target_hash,
            **metrics,
        }
        # A lone surrogate in a model's text cannot be written as UTF-8; it stays visible as an escape.
        return f"{self.head}, {_json(rest)[1:]}\n".encode("utf-8", "backslashreplace")


def _json(value: Any) -> str:
    return json.dumps(value, default=handle_non_serializable, ensure_ascii=False)


def _indented(text: str, doc: Any) -> bytes:
    """The JSON that lm-eval hashes: ``json.dumps(doc, indent=2)``, whose Python encoder is slow."""
    try:
        return msgspec.json.format(text.encode("utf-8"), indent=2)
    except msgspec.DecodeError:  # NaN and infinities, which JSON does not know
        return json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False).encode("utf-8")


def _fill_in(sample: Sample, answers: Sequence[Answer]) -> None:
    texts = iter(_NULL_CONTENT if answer.text is None else answer.text for answer in answers)
    for instance in sample.instances:
        instance.resps = []
        instance.filtered_resps = {}
    by_index = {instance.idx: instance for instance in sample.instances}
    for request, text in zip(sample.requests, texts, strict=True):
        by_index[request.index].resps.append(text)


def _outcome(answers: Sequence[Answer], filtered: list[Any], fallbacks: Sequence[Any]) -> Outcome:
    if any(answer.finish_reason == "length" for answer in answers):
        return Outcome.TRUNCATED
    if all(not (answer.text or "").strip() for answer in answers):
        return Outcome.EMPTY
    if fallbacks and all(value in fallbacks for value in filtered):
        return Outcome.UNEXTRACTED
    return Outcome.ANSWERED


def _filter_ensembles(task: Any) -> list[Any]:
    return list(getattr(task, "_filters", []))


def _fallbacks(ensemble: Any) -> tuple[Any, ...]:
    """What the ensemble's filters give where they find no answer."""
    steps = [make() for make in ensemble.filters]
    return tuple(step.fallback for step in steps if getattr(step, "fallback", None) is not None)


def _copy(doc: Any) -> Any:
    """lm-eval reads each document anew for every filter, so a scorer that changes it does not disturb the next."""
    return dict(doc) if isinstance(doc, dict) else doc


def _may_draw_random_numbers(task: Any) -> bool:
    """lm-eval's own scoring of YAML tasks draws none; Python that comes with a task may."""
    custom = task.get_config("process_results") or any(
        callable(step.get("function")) for entry in task.get_config("filter_list") or () for step in entry["filter"]
    )
    return bool(custom) or type(task).__name__ != "ConfigurableTask"


@contextmanager
def _own_random_state(sample: Sample) -> Iterator[None]:
    """Seed what scorers draw from by the sample, and leave the stream that builds the prompts untouched."""
    state = random.getstate()
    random.seed(f"{sample.task}/{sample.doc_id}")
    if (langdetect := sys.modules.get("langdetect")) is not None:
        langdetect.DetectorFactory.seed = 0
    try:
        yield
    finally:
        random.setstate(state)


def _shared_random_state(_: Sample) -> AbstractContextManager[None]:
    return nullcontext()
