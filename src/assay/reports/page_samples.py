"""The samples in an HTML report: a row each for the list, and their texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.json_text import as_json, plain
from assay.reports.page_budget import BUDGET, PackedTexts, TextStore
from assay.reports.page_texts import (
    LABEL,
    entry_of,
    extracted_from,
    references_of,
    shared_with,
    up_to_blank_line,
    utf16_length,
)
from assay.runs.record import document_mean
from assay.types import MetricKey, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.reports.page_baseline import BaselineTexts
    from assay.reports.page_texts import Turn
    from assay.runs.samples import RunSample

_RIGHT_ANSWERS_LATER = 3
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
    """Length of what all its prompts' last turns begin with, up to a blank line, in UTF-16 units."""


class PackedSamples(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of a run as a report holds them."""

    index: dict[str, Any]
    """Tasks, rows and references, for JSON."""
    count: int
    texts: PackedTexts


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
        self._rows = bytearray()
        """JSON, each with a comma behind it."""
        self._count = 0
        self._texts = TextStore()
        self._references: list[list[Turn]] = []
        self._known_keys: set[tuple[str, str]] = set()
        """Metrics and filters of the last task's keys."""

    def add(self, sample: RunSample) -> None:
        """Take a sample."""
        if not self._tasks or self._tasks[-1].name != sample.task:
            self._tasks.append(TaskRows(name=sample.task, keys=[], filters=[], chosen=0, first=self._count))
            self._references.append([])
            self._known_keys.clear()
        task, references = self._tasks[-1], self._references[-1]
        task.count += 1
        for name, filtered in sample.filters.items():
            task.filters += [name] if name not in task.filters else []
            for metric in filtered.metrics:
                if (metric, name) not in self._known_keys:
                    self._known_keys.add((metric, name))
                    task.keys.append(str(MetricKey(metric, name)))
        if sample.prompts and not references:
            references += references_of(sample.prompts[0])
        for prompt in sample.prompts:
            shared = shared_with(prompt, references)
            task.common = shared if task.common is None else min(task.common, shared)
        flips = {} if self._baseline is None else self._baseline.flips(sample.task, sample.doc_id)
        scores = [_score(sample, key) for key in task.keys]
        self._rows += as_json(_row(sample, task, scores, flips)) + b","
        self._count += 1
        before = None if self._baseline is None else self._baseline.answer(sample.task, sample.doc_id)
        chosen = self._chosen.get(sample.task)
        is_right = chosen in task.keys and scores[task.keys.index(chosen)] == 1
        rank = 0 if flips else _rank(sample, is_right=is_right)
        self._texts.add(entry_of(sample, references, before), rank)

    @property
    def tasks(self) -> Sequence[TaskRows]:
        """The tasks of the samples taken, each with the key that says whether a sample is right."""
        for task in self._tasks:
            wanted = self._chosen.get(task.name)
            task.chosen = task.keys.index(wanted) if wanted in task.keys else 0
        return self._tasks

    def rows(self) -> list[Any]:
        """The rows of the samples taken, see :func:`_row`."""
        return list(plain(b"[%b]" % bytes(self._rows[:-1])))

    def texts(self, number: int) -> tuple[dict[str, Any], Sequence[Turn]]:
        """A sample's entry (:func:`assay.reports.page_texts.entry_of`), and the turns to which it refers."""
        place = next(place for place, task in enumerate(self._tasks) if number < task.first + task.count)
        return self._texts.entry(number), self._references[place]

    def pack(self, budget: int = BUDGET) -> PackedSamples:
        """Everything taken, with texts as long as the budget allows.

        Args:
            budget: characters for the texts.
        """
        for task, references in zip(self.tasks, self._references, strict=True):
            if task.common:
                task.common = utf16_length(up_to_blank_line(references[-1][1][: task.common]))
        texts, count = self._texts.pack(budget), self._count
        index = {
            "tasks": msgspec.to_builtins(self._tasks),
            "rows": msgspec.Raw(b"[" + self._rows[:-1] + b"]"),
            "references": self._references,
            "outcomes": OUTCOMES,
            "firsts": texts.firsts,
            "whole": "" if len(texts.whole) == count else _flags(texts.whole, count),
        }
        return PackedSamples(index=index, count=count, texts=texts)


def _row(sample: RunSample, task: TaskRows, scores: Sequence[float | None], flips: Mapping[str, str]) -> list[Any]:
    """``[doc_id, target, by filter [extracted, outcome], by key score, flips]``; short where a sample has no more."""
    filters = [
        [_label(extracted_from(sample, found)), OUTCOMES.index(found.outcome)] if found else None
        for found in map(sample.filters.get, task.filters)
    ]
    row: list[Any] = [sample.doc_id, _label(sample.target), filters, scores]
    return [*row, dict(flips)] if flips else row


def _score(sample: RunSample, key: str) -> float | None:
    metric, filter_name = MetricKey.read(key)
    found = sample.filters.get(filter_name)
    score = None if found is None else found.metrics.get(metric)
    if score is None:
        return None
    value = document_mean(score)
    return round(value, 6) if abs(value) < float("inf") else None


def _rank(sample: RunSample, *, is_right: bool) -> int:
    """How late texts are kept whole: 0 where the outcome is of interest; right answers come after wrong ones."""
    if {one.outcome for one in sample.filters.values()} != {Outcome.ANSWERED}:  # of failed samples there is none
        return 0
    return _RIGHT_ANSWERS_LATER if is_right else 1


def _flags(numbers: set[int], count: int) -> str:
    return "".join("1" if number in numbers else "0" for number in range(count))


def _label(text: str) -> str:
    return text if len(text) <= LABEL else f"{text[: LABEL - 1]}…"
