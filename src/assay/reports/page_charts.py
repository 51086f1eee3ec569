"""Latencies, lengths and throughput of a run's answers, as a report plots them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.types import Answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.results.check_results import EvidenceCourse
    from assay.runs.samples import RunSample

_BINS = 40
_TIME_BINS = 120
_FEWEST = 5
"""Values below which a distribution says nothing."""


class ResponseFigures:
    """Collects what the journal knows of every answer; empty for runs without one."""

    def __init__(self) -> None:
        self._latencies = array("d")
        self._lengths = array("d")
        self._times = array("d")

    def add(self, sample: RunSample) -> None:
        """Take a sample's responses."""
        for place, response in enumerate(sample.responses):
            if not isinstance(response, Answer):
                continue
            if response.latency > 0:
                self._latencies.append(response.latency)
            if response.completion_tokens:
                self._lengths.append(response.completion_tokens)
            if place < len(sample.times):
                self._times.append(sample.times[place])

    @property
    def span(self) -> float | None:
        """Seconds from the first answer to the last."""
        return max(self._times) - min(self._times) if self._times else None

    def plots(self) -> dict[str, Any]:
        """Histograms of seconds and tokens, ``{"edges", "counts"}``, and answers a second, ``{"seconds", "rate"}``."""
        plots: dict[str, Any] = {}
        for name, values in (("latency", self._latencies), ("tokens", self._lengths)):
            if len(values) >= _FEWEST and min(values) < max(values):
                plots[name] = _histogram(np.array(values))
        if len(self._times) >= _FEWEST and self.span:
            plots["rate"] = _rate(np.array(self._times))
        return plots

    def words(self) -> dict[str, str]:
        """What each of the plots shows, in words."""
        words = {}
        for name, unit, values in (("latency", "s", self._latencies), ("tokens", "tokens", self._lengths)):
            if values:
                least, low, middle, high, most = np.quantile(np.array(values), (0, 0.25, 0.5, 0.75, 1))
                words[name] = (
                    f"half of {len(values):,} between {low:.3g} and {high:.3g} {unit}, median {middle:.3g}, "
                    f"all between {least:.3g} and {most:.3g}"
                )
        if self._times and self.span:
            rates = _rate(np.array(self._times))["rate"]
            words["rate"] = f"at least {min(rates):.3g}, at most {max(rates):.3g}, over {self.span:.3g} s"
        return words


def course_words(one: EvidenceCourse) -> str:
    """The last point of a score's course, in words."""
    course = one.course
    if not course.seen:
        return "no documents"
    estimate = "none" if course.estimate[-1] is None else f"{course.estimate[-1]:.4f}"
    return (
        f"{'difference' if one.is_difference else 'score'} {estimate} after {course.seen[-1]} documents, range "
        f"{course.low[-1]:.4f} to {course.high[-1]:.4f}, {'margin' if one.is_difference else 'threshold'} "
        f"{course.threshold:g}"
    )


def evidence_words(one: EvidenceCourse) -> str:
    """The last point of the evidence for either verdict, in words."""
    course = one.course
    if not course.seen:
        return "no documents"
    logs = (("pass", course.for_pass), ("fail", course.for_fail))
    found = ", ".join(f"evidence for {verdict} {_power(values[-1])}" for verdict, values in logs)
    return f"{found} after {course.seen[-1]} documents; {1 / course.alpha:g} decides"


def _power(logarithm: float) -> str:
    """10 to this power; as a power where the number is too large to read."""
    return f"{10**logarithm:.3g}" if abs(logarithm) < 6 else f"1e{logarithm:+.0f}"


def _histogram(values: NDArray[np.float64]) -> dict[str, list[float]]:
    """In bins of equal width on a logarithmic scale: answers differ in length a hundredfold."""
    spaced = np.geomspace(values.min(), values.max() * 1.0001, min(_BINS, len(values)) + 1)
    edges = np.array(sorted(set(spaced.tolist())))  # without np.unique, as in stats/slices.py
    counts, _ = np.histogram(values, edges)
    return {"edges": edges.round(6).tolist(), "counts": counts.tolist()}


def _rate(times: NDArray[np.float64]) -> dict[str, list[float]]:
    seconds = times - times.min()
    counts, edges = np.histogram(seconds, min(_TIME_BINS, max(4, len(times) // 4)))
    widths = np.diff(edges)
    return {"seconds": ((edges[1:] + edges[:-1]) / 2).round(4).tolist(), "rate": (counts / widths).round(4).tolist()}
