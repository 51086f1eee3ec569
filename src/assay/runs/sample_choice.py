"""Selects samples of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from assay.errors import UsageError
from assay.runs.compare import Flip, compare
from assay.runs.samples import RunSamples, results_file_of
from assay.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from assay.runs.samples import RunSample


class SampleChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on samples. A sample is chosen if it meets all of them; an empty one is always met."""

    tasks: tuple[str, ...] = ()
    doc_ids: tuple[int, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    wrong: bool = False
    """At least one of its scores is below 1, or one of its verdicts is False."""
    flipped: bool = False
    """Its score differs from the baseline's."""
    containing: str | None = None
    """Text that an answer or its reasoning contains; case is ignored."""


class ChosenSample(NamedTuple):
    """A sample, and how it changed."""

    sample: RunSample
    flips: Sequence[Flip]
    """The changes against the baseline: one for each metric key whose score changed."""


def read_samples(
    run: str | Path, choice: SampleChoice | None = None, *, baseline: str | Path | None = None
) -> Iterator[ChosenSample]:
    """Iterate over the samples of a finished run of Assay or lm-eval; each is read on demand.

    Args:
        run: a results file, a samples file or a folder of results (its newest run).
        choice: which samples; None: all.
        baseline: an earlier run or a saved baseline, to show how scores changed.

    Raises:
        UsageError: the run has no such task or document, or ``flipped`` is set without a baseline.
        FileFormatError: a file is missing or damaged.
        JournalError: the run's journal is there and cannot be read.
    """
    with RunSamples(results_file_of(run)) as samples:
        yield from choose(samples, choice or SampleChoice(), baseline)


def choose(run: RunSamples, choice: SampleChoice, baseline: str | Path | None = None) -> Iterator[ChosenSample]:
    """The chosen samples, task by task in document order; samples that cannot be chosen are not read.

    Args:
        run: the run.
        choice: the conditions.
        baseline: an earlier run (anything that :func:`assay.runs.files.read_run` accepts), to show how scores changed.

    Raises:
        UsageError: the run has no such task or document, or ``flipped`` is set without a baseline.
        FileFormatError: a file is missing or damaged.
    """
    if choice.flipped and baseline is None:
        raise UsageError("samples can be flipped only against a baseline: name one (--baseline RUN)")
    if unknown := [name for name in choice.tasks if name not in run.tasks]:
        raise UsageError(f"{run.file} has no task '{unknown[0]}'; it has {', '.join(run.tasks)}")
    flips = {} if baseline is None else _flips(run, baseline)
    for task in choice.tasks or run.tasks:
        for doc_id in _doc_ids(run, task, choice):
            changed = flips.get((task, doc_id), [])
            if choice.flipped and not changed:
                continue
            sample = run.sample(task, doc_id)
            if _is_chosen(sample, choice):
                yield ChosenSample(sample, changed)


def outcomes_of(sample: RunSample) -> set[Outcome]:
    """The outcomes of a sample under all of its filters."""
    if sample.failure is not None:
        return {Outcome.FAILED}
    return {filtered.outcome for filtered in sample.filters.values()}


def _flips(run: RunSamples, baseline: str | Path) -> Mapping[tuple[str, int], list[Flip]]:
    found: dict[tuple[str, int], list[Flip]] = {}
    for flip in compare(baseline, run.file).flips:
        found.setdefault((flip.task, flip.doc_id), []).append(flip)
    return found


def _doc_ids(run: RunSamples, task: str, choice: SampleChoice) -> Sequence[int]:
    known = run.doc_ids(task)
    if not choice.doc_ids:
        return known
    if len(choice.tasks or run.tasks) == 1:
        for doc_id in set(choice.doc_ids) - set(known):
            run.sample(task, doc_id)  # raises an error that lists the documents
    return [doc_id for doc_id in known if doc_id in choice.doc_ids]


def _is_chosen(sample: RunSample, choice: SampleChoice) -> bool:
    if choice.outcomes and not outcomes_of(sample) & set(choice.outcomes):
        return False
    if choice.wrong and not _is_wrong(sample):
        return False
    if choice.containing is None:
        return True
    wanted = choice.containing.casefold()
    said = (text for answer in sample.answers for text in (answer.text, answer.reasoning) if text)
    return any(wanted in text.casefold() for text in said)


def _is_wrong(sample: RunSample) -> bool:
    scores = (score for filtered in sample.filters.values() for score in filtered.metrics.values())
    return any(not all(score) if isinstance(score, tuple) else score < 1 for score in scores)
