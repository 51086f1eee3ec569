"""Gathers what an HTML report needs of a run's samples in one pass over them, its own or triage's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay._util.batches import batches
from assay.reports.page import outline
from assay.reports.page_charts import ResponseFigures
from assay.reports.page_samples import SamplePacker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from assay.reports.page import RunOutline
    from assay.reports.page_baseline import BaselineTexts
    from assay.runs.samples import RunSample, RunSamples


class PageSamples:
    """Takes a run's samples one by one, task by task."""

    def __init__(self, run: RunOutline, baseline: BaselineTexts | None = None) -> None:
        self.packer = SamplePacker(run.chosen_keys(), baseline)
        self.measured = ResponseFigures()

    def add(self, sample: RunSample) -> None:
        """Take a sample."""
        self.packer.add(sample)
        self.measured.add(sample)


class Gathering:
    """Gathers for the report while triage reads the samples, so that they are read once.

    Pass :meth:`read` to :func:`assay.evaluate` as its ``sample_reader``, then this to
    :func:`assay.reports.html.write_report`.
    """

    def __init__(self) -> None:
        self._file: Path | None = None
        self._samples: PageSamples | None = None

    def read(self, samples: RunSamples) -> Iterator[RunSample]:
        """All samples, each gathered as it goes by."""
        gathered = self._begin(samples)
        for batch in batches(samples):
            if gathered is not None:
                gathered = _added(gathered, batch)
            yield from batch
        self._file, self._samples = samples.file, gathered

    def _begin(self, samples: RunSamples) -> PageSamples | None:
        try:
            return PageSamples(outline(samples.file, samples.document))
        except Exception:  # must not stop triage; the report meets the same error, and tells it
            return None

    def of(self, results_file: Path) -> PageSamples | None:
        """What was gathered of this run; None unless all of its samples were read."""
        return self._samples if self._file == results_file else None


def _added(gathered: PageSamples, samples: Iterable[RunSample]) -> PageSamples | None:
    try:
        for sample in samples:
            gathered.add(sample)
    except Exception:  # as above
        return None
    return gathered
