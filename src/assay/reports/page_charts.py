"""Latencies, lengths and throughput of a run's answers, as a report plots them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.types import Answer

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
