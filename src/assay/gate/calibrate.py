"""How much a server differs from itself: the same run several times, and the margin that this suggests.

Batching, kernels and sampling let answers flip between two runs of one healthy server. A margin must leave room for
that, or a healthy server fails.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, sqrt
from typing import TYPE_CHECKING

import msgspec

from assay.errors import SpecificationError
from assay.runs.compare import compare_runs
from assay.runs.files import read_run
from assay.stats.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from assay.progress import Progress
    from assay.runs.compare import Change
    from assay.types import Specification

_DEVIATIONS = 3.0
_STEP = 0.005


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """How one score varies between runs of the same server."""

    task: str
    metric: str
    n: int
    """Documents."""
    values: tuple[float, ...]
    """The score of each run."""
    flip_rate: float
    """Share of documents whose score changes from one run to the next."""
    flip_rate_at_most: float
    """Upper end of its 95 % interval."""
    margin: float
    """Proposed: see :func:`proposed_margin`."""


def calibrate(
    specification: Specification, runs: int, watch: Callable[[], AbstractContextManager[Progress]]
) -> list[Noise]:
    """Run the same specification several times, each from the start, and compare each run with the one before.

    Args:
        specification: what to run, without checks.
        runs: how often; at least 2.
        watch: opens a progress display for one run.

    Raises:
        UsageError: it cannot be done as asked.
        UnjudgeableError: the server is gone, or nothing could be scored.
        RunInterrupted: stopped by Ctrl-C or SIGTERM.
    """
    from assay.evaluation import evaluate

    if runs < 2:
        raise SpecificationError(f"{runs} run shows no difference between runs; at least 2 are needed")
    fresh = msgspec.structs.replace(specification, fresh=True, retry_failed=False, checks=(), early_stopping=None)
    records = []
    for _ in range(runs):
        with watch() as progress:
            records.append(read_run(evaluate(fresh, progress).results_file))
    steps = [compare_runs(before, after).changes for before, after in pairwise(records)]
    return noise_of(steps)


def noise_of(steps: Sequence[Sequence[Change]]) -> list[Noise]:
    """The noise of every score that all comparisons of a run with the next have.

    Args:
        steps: for each run but the first, its changes against the one before.
    """
    by_place: dict[tuple[str, str], list[Change]] = {}
    for changes in steps:
        for change in changes:
            by_place.setdefault((change.task, change.metric), []).append(change)
    return [_noise(changes) for changes in by_place.values() if len(changes) == len(steps)]


def proposed_margin(flip_rate: float, n: int) -> float:
    """Three standard deviations of the difference of two healthy runs, rounded up to half a point; at least that.

    If answers flip with rate f, evenly, the difference of two runs on n documents has variance f/n (McNemar's, with no
    true difference). ``n`` counts all documents: a run that stops early needs no more room, for it estimates the
    difference on all of them.
    """
    return max(1, ceil(_DEVIATIONS * sqrt(flip_rate / n) / _STEP - 1e-9)) * _STEP


def _noise(changes: Sequence[Change]) -> Noise:
    flips, n = sum(change.lost + change.gained for change in changes), sum(change.n for change in changes)
    at_most = wilson(flips, n).high
    return Noise(
        task=changes[0].task,
        metric=changes[0].metric,
        n=changes[0].n,
        values=(changes[0].baseline, *(change.candidate for change in changes)),
        flip_rate=flips / n,
        flip_rate_at_most=at_most,
        margin=proposed_margin(at_most, changes[0].n),
    )
