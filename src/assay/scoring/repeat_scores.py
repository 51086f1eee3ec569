"""Scores repeated answers to a document, if the user has each document asked several times.

Each answer is scored by itself, by the task's own filters and metrics, and so is the one that lm-eval's
``majority_vote`` chooses. Values are fractions, so that a mean that equals a threshold passes.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.stats.repeats import pass_at_k
from assay.tasks.metrics import aggregates_by_mean, direction_of
from assay.tasks.repeats import RepeatMetric, pipelines_of_single_answers, repeat_metrics, repeats_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.tasks.protocol import Task
    from assay.tasks.repeats import Pipeline
    from assay.types import Sample


class _Answered:
    """Stands for one of lm-eval's instances when filters are applied."""

    def __init__(self, doc: Any, resps: Sequence[Any]) -> None:
        self.doc = doc
        self.resps = list(resps)
        self.filtered_resps: dict[str, Any] = {}


class RepeatScorer:
    """Scores all answers to one task's documents.

    Args:
        task: lm-eval's Task object.
        copy: copies a document, so that the task's code may change it.
    """

    def __init__(self, task: Task, copy: Callable[[Any], Any]) -> None:
        self._task = task
        self._copy = copy
        self._repeats = repeats_asked(task)
        self._pipelines = pipelines_of_single_answers(task) if self._repeats > 1 else []

    def score(self, sample: Sample) -> dict[str, dict[str, Fraction]]:
        """By filter and metric, the values of a document whose instances hold their responses.

        Empty if no repeats were asked for. Exceptions of the task's code are left to the caller.
        """
        if not self._pipelines or any(len(instance.resps) != self._repeats for instance in sample.instances):
            return {}  # its own Python makes its instances, and has no repeats
        return {pipeline.name: self._under(pipeline, sample) for pipeline in self._pipelines}

    def _under(self, pipeline: Pipeline, sample: Sample) -> dict[str, Fraction]:
        alone = [
            self._metrics(sample, _filtered(pipeline.alone, sample, slice(n, n + 1))) for n in range(self._repeats)
        ]
        try:
            chosen = _filtered(pipeline.voting, sample, slice(None))
        except TypeError:  # what the steps before give cannot be counted, as lists
            voted: Mapping[str, Any] = {}
        else:
            voted = self._metrics(sample, chosen)
        values: dict[str, Fraction] = {}
        for metric in alone[0]:
            if not aggregates_by_mean(self._task, metric):
                continue
            scores = [_fraction(metrics.get(metric)) for metrics in alone]
            known = [score for score in scores if score is not None]
            direction = direction_of(self._task, metric)
            for repeated in repeat_metrics(metric, self._repeats, higher_is_better=direction):
                value = _fraction(voted.get(metric)) if repeated.kind == "maj" else _value(repeated, known)
                if len(known) == self._repeats and value is not None:
                    values[str(repeated)] = value
        return values

    def _metrics(self, sample: Sample, filtered: list[Any]) -> Mapping[str, Any]:
        return self._task.process_results(self._copy(sample.doc), filtered)


def _filtered(ensemble: Any, sample: Sample, answers: slice) -> list[Any]:
    """What a filter makes of some of the answers to each of a document's instances."""
    answered = [_Answered(instance.doc, instance.resps[answers]) for instance in sample.instances]
    ensemble.apply(answered)
    return [each.filtered_resps[ensemble.name] for each in answered]


def _value(repeated: RepeatMetric, scores: Sequence[Fraction]) -> Fraction | None:
    """Of the scores of single answers; None where it is about right ones, and they are graded."""
    if repeated.kind == "avg":
        return sum(scores, Fraction(0)) / len(scores) if scores else None
    if not all(score in (0, 1) for score in scores) or len(scores) < repeated.k:
        return None
    return pass_at_k(len(scores), int(sum(scores)), repeated.k)


def _fraction(value: Any) -> Fraction | None:
    plain = value.item() if isinstance(value, np.generic) else value
    return Fraction(plain) if isinstance(plain, int | float) and isfinite(plain) else None
