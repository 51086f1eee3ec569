"""The samples in an HTML report: a row each for the list, and the texts, cut so that the file keeps to its size.

Texts are JSON, deflated in chunks and written as base64, which no parser of HTML can take for anything else.
"""

from __future__ import annotations

import base64
import json
import zlib
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from assay.report.page_texts import (
    LABEL,
    WHOLE,
    entry_of,
    extracted_from,
    limited,
    references_of,
    shared_with,
    up_to_blank_line,
    utf16_length,
)
from assay.runs import mean
from assay.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from assay.report.page_baseline import BaselineTexts
    from assay.run_samples import RunSample

BUDGET = 4_400_000
"""Characters that the texts may take; page, scripts and rows add some 400,000 to it for 12,000 samples."""

_BRIEF = (1000, 500, 250, 120)
"""Lengths to which texts are cut where not all fit; the first that leaves half of the budget for whole ones."""

_COMPRESSION = 6
_CHUNK = 400_000
"""Bytes of JSON deflated together: what opening a sample has to inflate."""
_TRIED = 400
"""Samples from which the size of all is estimated."""
_CAREFUL = 0.97
"""The first attempt aims at this share of the budget; each further one at as much less."""
_RIGHT_ANSWERS_LATER = 3
"""A right answer comes this much later in the order in which texts are kept whole."""
OUTCOMES = tuple(Outcome)


class TaskRows(msgspec.Struct, kw_only=True):
    """A task in the list of samples."""

    name: str
    keys: list[str]
    """Metric keys that its documents have a score under."""
    filters: list[str]
    chosen: int
    """Which of the keys says whether a sample is right, unless the reader chooses another."""
    first: int
    """Number of its first row."""
    count: int = 0
    common: int | None = None
    """How much all its prompts' last turns begin with in common, up to a blank line, in UTF-16 units."""


class PackedSamples(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of a run as a report holds them."""

    index: dict[str, Any]
    """Tasks, rows and references; plain data."""
    chunks: list[str]
    """Texts, in base64."""
    count: int
    whole: int
    """How many samples have their texts whole (up to :data:`assay.report.page_texts.WHOLE`)."""
    brief: int
    """To how many characters the others' texts are cut."""


class SamplePacker:
    """Takes samples one by one, task by task, and packs them in the end."""

    def __init__(self, chosen_keys: Mapping[str, str], baseline: BaselineTexts | None = None) -> None:
        """Begin without samples.

        Args:
            chosen_keys: by task, the metric key that says whether its samples are right.
            baseline: what an earlier run said to the same documents.
        """
        self._chosen = chosen_keys
        self._baseline = baseline
        self._tasks: list[TaskRows] = []
        self._rows: list[list[Any]] = []
        self._entries: list[dict[str, Any]] = []
        self._ranks: list[int] = []
        self._references: list[list[str]] = []

    def add(self, sample: RunSample) -> None:
        """Take a sample."""
        if not self._tasks or self._tasks[-1].name != sample.task:
            self._tasks.append(TaskRows(name=sample.task, keys=[], filters=[], chosen=0, first=len(self._rows)))
            self._references.append([])
        task, references = self._tasks[-1], self._references[-1]
        task.count += 1
        for name, filtered in sample.filters.items():
            task.filters += [name] if name not in task.filters else []
            task.keys += [key for metric in filtered.metrics if (key := f"{metric},{name}") not in task.keys]
        if sample.prompts and not references:
            references += references_of(sample.prompts[0])
        for prompt in sample.prompts:
            shared = shared_with(prompt, references)
            task.common = shared if task.common is None else min(task.common, shared)
        flips = {} if self._baseline is None else self._baseline.flips(sample.task, sample.doc_id)
        self._rows.append(_row(sample, task, flips))
        self._ranks.append(0 if flips else _rank(sample, self._chosen.get(sample.task)))
        before = None if self._baseline is None else self._baseline.answer(sample.task, sample.doc_id)
        self._entries.append(entry_of(sample, references, before))

    def pack(self, budget: int = BUDGET) -> PackedSamples:
        """Everything taken, with texts as long as the budget allows.

        Args:
            budget: characters for the texts.
        """
        for task in self._tasks:
            wanted = self._chosen.get(task.name)
            task.chosen = task.keys.index(wanted) if wanted in task.keys else 0
        for task, references in zip(self._tasks, self._references, strict=True):
            if task.common:
                task.common = utf16_length(up_to_blank_line(references[-1][: task.common]))
        brief, whole, firsts, chunks = self._fit(budget)
        index = {
            "tasks": msgspec.to_builtins(self._tasks),
            "rows": self._rows,
            "references": self._references,
            "outcomes": OUTCOMES,
            "firsts": firsts,
            "whole": "" if len(whole) == len(self._rows) else _flags(whole, len(self._rows)),
        }
        return PackedSamples(index=index, chunks=chunks, count=len(self._rows), whole=len(whole), brief=brief)

    def _fit(self, budget: int) -> tuple[int, set[int], list[int], list[str]]:
        """Limit of brief texts, the samples with whole ones, and the chunks."""
        numbers = range(len(self._entries))
        tried = numbers[:: max(1, len(numbers) // _TRIED)]
        times = len(numbers) / max(1, len(tried))
        sizes = [len(_json(entry)) for entry in self._entries]
        per_byte = self._packed_size(tried, WHOLE) / max(1, sum(sizes[number] for number in tried))
        room = _CAREFUL * budget
        if per_byte * sum(sizes) <= room:
            firsts, chunks = self._chunks(set(numbers), WHOLE)
            if sum(map(len, chunks)) <= budget:
                return WHOLE, set(numbers), firsts, chunks
        brief_sizes = ((limit, times * self._packed_size(tried, limit)) for limit in _BRIEF)
        brief, taken = next(((limit, size) for limit, size in brief_sizes if size < room / 2), (_BRIEF[-1], room / 2))
        order = self._most_notable_first()
        while True:
            costs = accumulate(per_byte * sizes[number] - taken / len(order) for number in order)
            whole = {number for number, cost in zip(order, costs, strict=True) if taken + cost <= room}
            firsts, chunks = self._chunks(whole, brief)
            if sum(map(len, chunks)) <= budget or not whole:
                return brief, whole, firsts, chunks
            room *= _CAREFUL

    def _most_notable_first(self) -> list[int]:
        """Unusual samples, then wrong and right ones, in a random order that is always the same."""
        places = list(range(len(self._entries)))
        Random(0).shuffle(places)
        return sorted(range(len(places)), key=lambda number: self._ranks[number] * places[number])

    def _packed_size(self, numbers: Sequence[int], limit: int) -> int:
        return sum(
            len(chunk) for _, chunk in _chunks(_json(limited(self._entries[number], limit)) for number in numbers)
        )

    def _chunks(self, whole: set[int], brief: int) -> tuple[list[int], list[str]]:
        texts = (
            _json(entry if number in whole else limited(entry, brief)) for number, entry in enumerate(self._entries)
        )
        pairs = list(_chunks(texts))
        return [first for first, _ in pairs], [chunk for _, chunk in pairs]


def deflated(value: Any) -> str:
    """Plain data as JSON, deflated, in base64."""
    return _base64(_json(value))


def _row(sample: RunSample, task: TaskRows, flips: Mapping[str, str]) -> list[Any]:
    """``[doc_id, target, by filter [extracted, outcome], by key score, flips]``; short where a sample has no more."""
    filters = [
        [_label(extracted_from(sample, found)), OUTCOMES.index(found.outcome)] if found else None
        for found in map(sample.filters.get, task.filters)
    ]
    row: list[Any] = [sample.doc_id, _label(sample.target), filters, [_score(sample, key) for key in task.keys]]
    return [*row, dict(flips)] if flips else row


def _score(sample: RunSample, key: str) -> float | None:
    metric, _, filter_name = key.partition(",")
    found = sample.filters.get(filter_name)
    score = None if found is None else found.metrics.get(metric)
    if score is None:
        return None
    value = mean([score])
    return round(value, 6) if abs(value) < float("inf") else None


def _rank(sample: RunSample, key: str | None) -> int:
    """0 where something other than the score is of interest, then by how soon texts are to be kept whole."""
    if sample.failure is not None or any(one.outcome is not Outcome.ANSWERED for one in sample.filters.values()):
        return 0
    return _RIGHT_ANSWERS_LATER if key is not None and _score(sample, key) == 1 else 1


def _chunks(texts: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Number of the first sample, and the JSON list of all, packed."""
    first, size = 0, 0
    held: list[bytes] = []
    for number, text in enumerate(texts):
        if held and size + len(text) > _CHUNK:
            yield first, _base64(b"[%b]" % b",".join(held))
            first, held, size = number, [], 0
        held.append(text)
        size += len(text)
    if held:
        yield first, _base64(b"[%b]" % b",".join(held))


def _flags(numbers: set[int], count: int) -> str:
    return "".join("1" if number in numbers else "0" for number in range(count))


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot hold; escaped, it is JSON all the same
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def _base64(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text, _COMPRESSION)).decode("ascii")


def _label(text: str) -> str:
    return text if len(text) <= LABEL else f"{text[: LABEL - 1]}…"
