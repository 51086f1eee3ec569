"""Measures how much runs of one server differ, and proposes margins.

Batching, kernels and sampling change some answers between two runs of a healthy server. A margin must allow for that,
or a healthy server fails.
"""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_CEILING, Context, Decimal
from itertools import pairwise
from pathlib import Path  # noqa: TC003 - msgspec resolves the annotations
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from assay._util.event_loops import refuse_inside_event_loop
from assay.errors import NothingMeasuredError, SpecificationError, UnjudgeableError
from assay.runs.files import read_run
from assay.runs.record import Part, mean
from assay.stats.rerun import Reruns, rerun_noise
from assay.tasks.metric_ranges import is_share
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.evaluation import Evaluation
    from assay.progress import Progress
    from assay.runs.record import RecordedRun, Score, TaskRecord
    from assay.types import Specification

_DEVIATIONS = 3.0
CONFIDENCE = 0.9
"""Confidence of the upper limit. With it a healthy server fails the proposed margin in about 1 % of gates at most; see
``benchmarks/simulate_margins.py``."""
_ROUNDED_UP_FROM = 1 - Decimal("1e-11")
"""A margin that is above two digits only by rounding stays there."""
_EXACTLY = Context(prec=40)
_DOMINANT = 0.5
"""A subtask is named if it has more than this share of the noise and less than this share of the documents."""


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How one score of a task or group varies between runs of the same server."""

    task: str
    metric: str
    is_group: bool = False
    n: int
    """How many documents were scored in at least two runs."""
    values: tuple[float, ...]
    """The score of each run."""
    flip_rate: float
    """Share of documents whose score changes from one run to the next."""
    deviation: float
    """Standard deviation of the difference between two runs' scores."""
    deviation_at_most: float
    """Its upper limit with 90 % confidence."""
    margin: float
    """The proposed margin, on the scale of the score: three times ``deviation_at_most``, but at least what one answer
    can cost; rounded up to two digits. 1 at most, if the metric is known to lie between 0 and 1."""
    met_by_any_score: bool = False
    """The margin is as wide as the range of the metric: with so few documents, noise could look like any loss."""
    mostly_of: str | None = None
    """A subtask that makes most of the noise although it has less than half of the documents."""
    failed: int = 0
    """Samples that failed, in all runs together; the figures leave them out."""
    part: Part | None = None
    """How much was asked, if not everything."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How much several runs of one specification on one server differ."""

    results_files: tuple[Path, ...]
    """One for each run."""
    noise: tuple[Noise, ...]
    """One entry for each score, groups first."""

    @property
    def failed(self) -> int:
        """How many samples failed, of the score with the most failures."""
        return max((row.failed for row in self.noise), default=0)

    @property
    def exit_code(self) -> int:
        """Exit code of ``assay calibrate``: 4 if samples failed, else 0."""
        return UnjudgeableError.exit_code if self.failed else 0


def calibrate(
    specification: Specification,
    runs: int = 3,
    progress: Progress | None = None,
    *,
    on_result: Callable[[Calibration], None] = lambda _: None,
) -> Calibration:
    """Run a specification several times, each time with new answers, and measure how much the scores differ.

    Args:
        specification: what to run, without checks, early stopping, probe and triage.
        runs: how many times; at least 2.
        progress: is told what happens in each run, one after another; :func:`assay.show_progress` shows it.
        on_result: called with the calibration before its runs are marked as finished. If the process ends earlier, the
            same call asks nothing again. Later it starts anew, or asks only failed samples if there are any.

    Raises:
        UsageError: it cannot be done as asked.
        UnjudgeableError: the server is gone, or nothing could be scored.
        RunInterrupted: stopped by Ctrl-C or SIGTERM; the same call continues where it stopped.
    """
    from assay.evaluation import evaluate
    from assay.evaluation.finish import finish_all

    refuse_inside_event_loop("calibrate", "await asyncio.to_thread(calibrate, …)")
    if runs < 2:
        raise SpecificationError(f"{runs} run shows no difference between runs; at least 2 are needed")
    alone = msgspec.structs.replace(
        specification, retry_failed=False, checks=(), early_stopping=None, probe=False, triage=False
    )
    evaluations = []
    for number in range(1, runs + 1):
        evaluations.append(evaluate(msgspec.structs.replace(alone, rerun=number), progress, finish=False))
    calibration = Calibration(
        results_files=tuple(evaluation.results_file for evaluation in evaluations),
        noise=tuple(_noise_of_evaluations(evaluations)),
    )
    on_result(calibration)
    finish_all(evaluations)
    return calibration


def _noise_of_evaluations(evaluations: Sequence[Evaluation]) -> list[Noise]:
    records = [read_run(evaluation.results_file) for evaluation in evaluations]
    failed = Counter(sample.task for evaluation in evaluations for sample in evaluation.failures)
    noise = []
    for row in noise_of(records):
        tasks = records[0].groups[row.task].tasks if row.is_group else (row.task,)
        part = _part_of([records[0].tasks[task] for task in tasks])
        noise.append(msgspec.structs.replace(row, failed=sum(failed[task] for task in tasks), part=part))
    if not noise:
        raise NothingMeasuredError("no document was scored in two of the runs, so that nothing can be compared")
    return noise


def _part_of(tasks: Sequence[TaskRecord]) -> Part | None:
    partial = [task.part for task in tasks if task.part is not None]
    if not partial:
        return None
    held = sum(len(task.doc_ids) + len(task.failed) for task in tasks)
    whole = held + sum(part.population - part.held for part in partial)
    return Part(held=held, population=whole, why=partial[0].why)


def noise_of(runs: Sequence[RecordedRun]) -> list[Noise]:
    """The noise of every score that all runs have, groups first; a group's is that of its aggregate.

    Args:
        runs: runs of one specification on one server; at least 2.
    """
    return [*_group_noise(runs), *_task_noise(runs)]


def proposed_margin(deviation: float, one_answer: float = 0.0) -> float:
    """Three standard deviations of the difference between two healthy runs, rounded up to two digits.

    A run that stops early needs no larger margin, because it estimates the difference on all documents.

    Args:
        deviation: standard deviation of the difference between two runs; greater than 0.
        one_answer: what a single answer can cost; the margin is at least this.
    """
    margin = Decimal(max(_DEVIATIONS * deviation, one_answer)) * _ROUNDED_UP_FROM
    return float(margin.quantize(Decimal(1).scaleb(margin.adjusted() - 1), ROUND_CEILING, _EXACTLY))


def _group_noise(runs: Sequence[RecordedRun]) -> Iterator[Noise]:
    for name, group in runs[0].groups.items():
        for metric, by_size in group.weighted_by_size.items():
            members = [_Documents.of(runs, task, metric) for task in group.tasks]
            known = [member for member in members if member is not None]
            if known and len(known) == len(members):
                yield _noise(name, metric, known, [run.groups[name].values[metric] for run in runs], by_size=by_size)


def _task_noise(runs: Sequence[RecordedRun]) -> Iterator[Noise]:
    for name, task in runs[0].tasks.items():
        for metric in task.scores:
            documents = _Documents.of(runs, name, metric)
            if documents is not None:
                yield _noise(name, metric, [documents], [mean(run.tasks[name].scores[metric]) for run in runs])


class _Documents(msgspec.Struct, frozen=True):
    """One task's documents in all runs."""

    task: str
    totals: list[list[float]]
    """By document and run, its score or the sum of its verdicts; NaN where it failed."""
    values: int
    """How many scores or verdicts all documents have together."""

    @classmethod
    def of(cls, runs: Sequence[RecordedRun], task: str, metric: str) -> _Documents | None:
        """None if a run lacks these scores, or no document was scored twice."""
        records = [run.tasks[task] for run in runs if task in run.tasks]
        if len(records) < len(runs) or not all(metric in record.scores for record in records):
            return None
        found: list[dict[int, Score]] = [
            dict(zip(record.doc_ids, record.scores[metric], strict=True)) for record in records
        ]
        twice = [
            document
            for document in sorted({number for scores in found for number in scores})
            if sum(document in scores for scores in found) > 1
        ]
        known = [next(scores[document] for scores in found if document in scores) for document in twice]
        values = sum(len(score) if isinstance(score, tuple) else 1 for score in known)
        totals = [[_total(scores.get(document)) for scores in found] for document in twice]
        return cls(task, totals, values) if totals else None

    @property
    def flip_rates(self) -> list[float]:
        """By document, in which share of the pairs of successive runs its score changed."""
        shares = []
        for row in self.totals:
            steps = [old != new for old, new in pairwise(row) if old == old and new == new]
            shares.append(sum(steps) / len(steps) if steps else 0.0)
        return shares


def _total(score: Score | None) -> float:
    return float("nan") if score is None else float(sum(score) if isinstance(score, tuple) else score)


def _noise(
    name: str, metric: str, members: Sequence[_Documents], values: Sequence[float], *, by_size: bool | None = None
) -> Noise:
    sizes = [len(member.totals) for member in members]
    found = rerun_noise(
        [
            Reruns(np.array(member.totals), size if by_size else 1, member.values)
            for member, size in zip(members, sizes, strict=True)
        ],
        CONFIDENCE,
    )
    greatest = max(range(len(members)), key=found.shares.__getitem__)
    stands_out = found.shares[greatest] > _DOMINANT > sizes[greatest] / sum(sizes)
    rates = [rate for member in members for rate in member.flip_rates]
    margin = proposed_margin(found.at_most, found.one_answer)
    is_too_wide = margin >= 1 and is_share(MetricKey.read(metric).metric) and all(0 <= value <= 1 for value in values)
    return Noise(
        task=name,
        metric=metric,
        is_group=by_size is not None,
        n=sum(sizes),
        values=tuple(values),
        flip_rate=sum(rates) / len(rates),
        deviation=found.deviation,
        deviation_at_most=found.at_most,
        margin=1.0 if is_too_wide else margin,
        met_by_any_score=is_too_wide,
        mostly_of=members[greatest].task if stands_out else None,
    )
