"""A finished run as data: the score of each document, and what must be equal to compare it with another run.

:mod:`assay.runs.files` reads it from result files, and :mod:`assay.runs.baseline` keeps it as a baseline.
"""

from __future__ import annotations

import hashlib
from math import fsum, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Score = float | tuple[bool, ...]
"""A document's score under one metric: a number, or several verdicts (one for each of IFEval's instructions)."""

_SHORT = 8
"""Hexadecimal digits kept of a hash: the chance to miss a changed document is one in four billion."""


class AnswerText(msgspec.Struct, frozen=True):
    """The texts of one document: the model's response, what was extracted from it, and the target."""

    response: str
    extracted: str
    """The filter's result."""
    target: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a task's documents a run asked, if not all."""

    held: int
    population: int
    why: str
    """``stopped early``, or the option that limited the run."""

    def __str__(self) -> str:
        return f"{self.held} of {self.population} documents ({self.why})"


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a run. Tuples have one entry for each scored document, in the order of ``doc_ids``."""

    name: str
    settings: dict[str, Any]
    """What else must be equal to compare scores: version, generation settings, filters, metrics. Empty if the run's
    files do not have them."""
    doc_ids: tuple[int, ...]
    documents: tuple[str, ...]
    """Hash of each document with its target; see :func:`document_hash`."""
    prompts: tuple[str, ...]
    """Hash of each prompt, shortened."""
    failed: tuple[int, ...] = ()
    """Documents that were asked and have no score."""
    scores: dict[str, tuple[Score, ...]] = {}
    """By metric key, for metrics that are means over documents (or over their verdicts)."""
    values: dict[str, float] = {}
    """By metric key, the value in the results file."""
    higher_is_better: dict[str, bool] = {}
    """By metric key; only metrics whose direction the run states."""
    part: Part | None = None
    """None if all documents were asked, or the run's files do not tell."""
    samples_file: str | None = None
    """The file with the answers' texts."""
    texts: dict[str, tuple[AnswerText, ...]] = {}
    """By filter, the answers' texts, if the record was saved with them."""


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A group of tasks that are reported together."""

    tasks: tuple[str, ...]
    """All its tasks, with those of its subgroups."""
    weighted_by_size: dict[str, bool]
    """By metric key, whether the aggregate is the mean over documents; else it is the mean of the tasks' scores."""
    values: dict[str, float] = {}


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was read from its files."""

    source: str
    """The file that it was read from."""
    model: str
    date: str
    versions: dict[str, str] = {}
    """Versions of Assay and lm-eval."""
    tasks: dict[str, TaskRecord]
    groups: dict[str, GroupRecord] = {}
    stopped_early: bool = False
    """Whether only a random part of the documents was asked."""
    journal: str | None = None
    """Name of the journal with its answers, if there is one. A resumed run may have several results files, but has one
    journal."""

    def scores(self, task: str, metric: str) -> dict[int, Score]:
        """By document, a task's scores under a metric key; empty if there are none."""
        record = self.tasks.get(task)
        return {} if record is None else dict(zip(record.doc_ids, record.scores.get(metric, ()), strict=False))

    @property
    def documents(self) -> int:
        """How many documents were scored, in all tasks."""
        return sum(len(task.doc_ids) for task in self.tasks.values())


def are_same_run(one: RecordedRun, other: RecordedRun) -> bool:
    """Whether two records hold the same answers: they share the journal, the file, or both the scores and the time."""
    if one.journal is not None and one.journal == other.journal:
        return True
    if Path(one.source).resolve() == Path(other.source).resolve():
        return True
    scores = [{name: task.scores for name, task in run.tasks.items()} for run in (one, other)]
    return bool(one.date) and (one.date, one.model, scores[0]) == (other.date, other.model, scores[1])


def document_hash(doc_hash: str, target_hash: str) -> str:
    """Short hash of a document with its target, from lm-eval's two hashes (hexadecimal)."""
    return hashlib.sha256(f"{doc_hash}{target_hash}".encode()).hexdigest()[:_SHORT]


def prompt_hash(full: str) -> str:
    """Short hash of a prompt, from lm-eval's hash (hexadecimal)."""
    return full[:_SHORT]


def score_of(value: Any) -> Score | None:
    """A document's value under a metric as a score; None if it cannot be averaged."""
    if isinstance(value, int | float):
        return float(value) if isfinite(value) else None
    if isinstance(value, list | tuple) and value and all(isinstance(item, bool) for item in value):
        return tuple(value)
    return None


def mean(scores: Iterable[Score]) -> float:
    """The mean as lm-eval computes it: over documents, or over all verdicts of all documents.

    NaN if there are no scores.
    """
    flat = [value for score in scores for value in (score if isinstance(score, tuple) else (score,))]
    return fsum(flat) / len(flat) if flat else float("nan")


def document_mean(score: Score) -> float:
    """A document's score as one number: the score, or the share of its verdicts that are True."""
    return score if isinstance(score, float) else mean((score,))


def document_means(scores: Sequence[Score]) -> list[float]:
    """:func:`document_mean` of each."""
    return list(map(document_mean, scores))


def with_tasks(run: RecordedRun, names: Sequence[str]) -> RecordedRun:
    """The run with some of its tasks alone, and the groups that these make up; all of it for no names.

    Raises:
        SpecificationError: the run has no task or group of a name.
    """
    if not names:
        return run
    wanted: set[str] = set()
    for name in names:
        if name not in run.tasks and name not in run.groups:
            raise SpecificationError(
                f"{run.source} has no task '{name}'; it has {', '.join([*run.tasks, *run.groups])}"
            )
        wanted |= set(run.groups[name].tasks) if name in run.groups else {name}
    return msgspec.structs.replace(
        run,
        tasks={name: task for name, task in run.tasks.items() if name in wanted},
        groups={name: group for name, group in run.groups.items() if set(group.tasks) <= wanted},
    )
