"""How much two runs of one unchanged server differ: standard deviation of the difference, and its upper limit.

Only a few documents vary from run to run, so the noise is estimated from the number of documents that varied. A subtask
of five documents in which none varied may still be as noisy as the others, and if all subtasks count the same, it then
outweighs them. So each subtask's rate of varying documents has a gamma distribution, from the subtask's own documents
and, with the weight of one varying document, from the others. The upper limit is a quantile of the gamma distribution
with the mean and variance of the weighted sum, as in Fay and Feuer (1997), Statistics in Medicine 16:791, for weighted
sums of Poisson counts.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from assay.errors import NothingMeasuredError
from assay.stats.validate import probability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Reruns(NamedTuple):
    """One subtask's documents in several runs."""

    scores: Floats
    """Shape (documents, runs): each document's score, or the sum of its verdicts; NaN where it failed. Each has at
    least two."""
    weight: float
    """The subtask's weight in the aggregate; weights need not sum to 1."""
    values: int
    """By what the subtask's score divides the sum: the number of its documents, or of all their verdicts."""


class RerunNoise(NamedTuple):
    """The noise of the difference between two runs, on the scale of the score."""

    deviation: float
    """Observed standard deviation."""
    at_most: float
    """Its upper limit."""
    shares: tuple[float, ...]
    """By subtask, its share of the upper limit's variance."""
    one_answer: float
    """The most that one document moves the score, from the worst to the best that any document was seen to score."""


def rerun_noise(subtasks: Sequence[Reruns], confidence: float = 0.95) -> RerunNoise:
    """The noise of a score that is the weighted mean of its subtasks' means, from runs of one unchanged server.

    The score Σ w_g·x_g/m_g, of each subtask's sum x_g over m_g values, differs between two runs with variance
    Σ (w_g/m_g)²·Σ_i 2·s_i², where s_i² is the variance of document i over the runs. With v_i = 2·s_i² and the size of
    an event e = Σv²/Σv, a subtask of n documents saw F = Σv/e events; its rate of events is then gamma with shape F + 1
    and rate n + N'/(F' + 1), of which N' and F' are the documents and events of all other subtasks.

    Args:
        subtasks: the subtasks of a group, or a single task.
        confidence: one-sided confidence of the upper limit.

    Raises:
        NothingMeasuredError: no document has scores in two runs.
        SpecificationError: ``confidence`` is out of range.
    """
    from scipy.special import gammaincinv

    level = probability("confidence", confidence)
    if not all(len(subtask.scores) for subtask in subtasks) or not subtasks:
        raise NothingMeasuredError("no document was scored in two runs, so nothing shows how much they differ")
    noise = [2 * np.nanvar(subtask.scores, axis=1, ddof=1) for subtask in subtasks]
    event = _event(noise, subtasks)
    documents = np.array([len(each) for each in noise], dtype=np.float64)
    sums = np.array([each.sum() for each in noise])
    events = sums / event
    rates = documents + (documents.sum() - documents) / (events.sum() - events + 1)
    weights = np.array([subtask.weight for subtask in subtasks])
    worths = weights / weights.sum() / np.array([subtask.values for subtask in subtasks])
    factors = worths**2
    means = factors * documents * event * (events + 1) / rates
    variance = float((means**2 / (events + 1)).sum())
    mean = float(means.sum())
    upper = float(gammaincinv(mean**2 / variance, level)) * variance / mean
    one_answer = float(worths.max()) * _span(subtasks)
    return RerunNoise(sqrt(float((factors * sums).sum())), sqrt(upper), tuple(means / mean), one_answer)


def _event(noise: Sequence[Floats], subtasks: Sequence[Reruns]) -> float:
    """2·s² of a typical varying document; if none varied, of one that moves from worst to best in a single run."""
    seen = np.concatenate(noise)
    if seen.any():
        return float((seen**2).sum() / seen.sum())
    return 2 * _span(subtasks) ** 2 / int(subtasks[0].scores.shape[1])


def _span(subtasks: Sequence[Reruns]) -> float:
    """Distance from the worst score to the best; if all are equal, from 0 to that score."""
    scores = np.concatenate([subtask.scores.ravel() for subtask in subtasks])
    low, high = float(np.nanmin(scores)), float(np.nanmax(scores))
    return (high - low) or max(abs(low), abs(high)) or 1.0
