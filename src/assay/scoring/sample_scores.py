"""Scores answered samples by lm-eval's own filters and metrics, and writes their sample lines.

Several samples go through each stage together, because that keeps the stage's code in the processor's caches: it costs
little more than half of taking one sample after another through all stages.
"""

from __future__ import annotations

import reprlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from lm_eval.api.registry import metric_registry

from assay.errors import TaskConfigError
from assay.scoring.outcomes import fallbacks_of
from assay.scoring.repeat_scores import RepeatScorer
from assay.scoring.sample_lines import SampleLines
from assay.tasks.documents import copied, may_be_changed
from assay.tasks.loglikelihood import lm_eval_response
from assay.tasks.metrics import aggregation_of, may_aggregate_none
from assay.tasks.patches.exact_match import cache_exact_matches
from assay.tasks.patches.filters import are_of_library, cache_filters
from assay.tasks.task_errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from assay.tasks.protocol import Task
    from assay.types import Answer, Sample

_LIBRARY_METRICS = "lm_eval.api.metrics"
_NULL_CONTENT = ""
"""What lm-eval scores in place of null content."""


class AnsweredSample(NamedTuple):
    """A sample with an answer to each of its requests (same order)."""

    sample: Sample
    answers: Sequence[Answer]


class Scored(NamedTuple):
    """A sample under one filter."""

    filter_name: str
    filtered: list[Any]
    """What the filter extracted from the answers, one entry for each instance."""
    metrics: dict[str, Any]
    repeats: Mapping[str, Fraction]
    """By metric over all repeated answers, its value; see :mod:`assay.tasks.repeats`."""
    line: bytes
    """The line of lm-eval's samples file."""
    hashes: bytes
    """SHA-256 of document, prompt and target, one after another."""


class Scorer:
    """Scores one task's samples.

    Args:
        task: lm-eval's Task object.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._ensembles = cache_filters(task)
        self._may_change = may_be_changed(task)
        self._copy = copied if self._may_change else _shallow_copy
        self.fallbacks = {ensemble.name: fallbacks_of(ensemble) for ensemble in self._ensembles}
        """By filter, what it returns if it finds no answer."""
        self.is_foreign = _is_scored_by_foreign_code(task) or not are_of_library(self._ensembles)
        """Whether the task's own Python takes part, which may draw random numbers, use the alarm and so on."""
        self._repeats = RepeatScorer(task, self._copy)
        cache_exact_matches(task)

    def score(self, answered: Sequence[AnsweredSample]) -> list[tuple[Scored, ...]]:
        """Score samples, at least one, under all filters.

        An exception of the task's code may be due to any of them.
        """
        samples = [sample for sample, _ in answered]
        for sample, answers in answered:
            _fill_in(sample, answers)
        self._apply_filters([instance for sample in samples for instance in sample.instances])
        lines = None if self._may_change else [SampleLines.of(sample, self._task, sample.doc) for sample in samples]
        repeats = [self._repeats.score(sample) for sample in samples]
        by_filter = [
            self._score_under_filter(name, samples, lines, [each.get(name, {}) for each in repeats])
            for name in samples[0].instances[0].filtered_resps
        ]
        return list(zip(*by_filter, strict=True))

    def _apply_filters(self, instances: Sequence[Any]) -> None:
        """Apply all filters; raise if one drops an answer, which would silently be missing from the mean."""
        for ensemble in self._ensembles:
            ensemble.apply(instances)
        for instance in instances:
            if lost := [name for name in self.fallbacks if name not in instance.filtered_resps]:
                raise TaskConfigError(f"filter '{lost[0]}' gave back fewer answers than it was given")

    def _score_under_filter(
        self,
        name: str,
        samples: Sequence[Sample],
        lines: Sequence[SampleLines] | None,
        repeats: Sequence[Mapping[str, Fraction]],
    ) -> list[Scored]:
        """The samples' scores under one filter; `lines` is None if the task's code may change documents."""
        docs = [self._copy(sample.doc) for sample in samples]
        filtered = [[instance.filtered_resps[name] for instance in sample.instances] for sample in samples]
        metrics = self._metrics(name, docs, filtered)
        if lines is None:
            lines = [SampleLines.of(sample, self._task, doc) for sample, doc in zip(samples, docs, strict=True)]
        return [
            Scored(name, given, values, of_all, line.line(name, given, values, of_all), line.hashes)
            for line, given, values, of_all in zip(lines, filtered, metrics, repeats, strict=True)
        ]

    def score_instances(self, filter_name: str, instances: Sequence[Any]) -> list[dict[str, Any]]:
        """The metrics of documents with one instance each, whose ``resps`` are given, under one filter."""
        self._apply_filters(instances)
        filtered = [[instance.filtered_resps[filter_name]] for instance in instances]
        return self._metrics(filter_name, [self._copy(instance.doc) for instance in instances], filtered)

    def _metrics(self, name: str, docs: Sequence[Any], filtered: Sequence[list[Any]]) -> list[dict[str, Any]]:
        """By document, its metrics; documents may be changed by the task's code."""
        process_results = self._task.process_results
        try:
            metrics = [process_results(doc, given) for doc, given in zip(docs, filtered, strict=True)]
        except TypeError as error:
            if any(value is None for given in filtered for value in given):
                raise TaskConfigError(
                    f"filter '{name}' gave None, which cannot be scored: {describe_error(error)}"
                ) from None
            raise
        for values in metrics:
            self._refuse_missing(values)
        return metrics

    def _refuse_missing(self, values: Any) -> None:
        """Refuse a metric that is None if lm-eval's aggregation would fail on it."""
        if not isinstance(values, dict):
            raise TaskConfigError(f"it gave {reprlib.repr(values)} in place of a dictionary of metrics")
        for name, value in values.items():
            if value is None and not may_aggregate_none(self._task, name):
                aggregation = aggregation_of(self._task, name).__name__
                raise TaskConfigError(
                    f"it gave None for '{name}', on which lm-eval's {aggregation} would end in an error"
                )


def _fill_in(sample: Sample, answers: Sequence[Answer]) -> None:
    by_place: dict[tuple[int, int], list[Answer]] = defaultdict(list)
    for request, answer in zip(sample.requests, answers, strict=True):
        by_place[request.index, request.repeat].append(answer)
    for index, instance in enumerate(sample.instances):
        kind = instance.request_type
        instance.resps = [_response(kind, by_place[index, repeat]) for repeat in range(instance.repeats or 1)]
        instance.filtered_resps = {}


def _response(kind: str, answers: Sequence[Answer]) -> Any:
    if kind != "generate_until":
        return lm_eval_response(kind, answers)
    (answer,) = answers
    return _NULL_CONTENT if answer.text is None else answer.text


def _shallow_copy(doc: Any) -> Any:
    """A copy of a document. lm-eval reads it anew for every filter, so that a scorer cannot change it for the next."""
    return dict(doc) if isinstance(doc, dict) else doc


def _is_scored_by_foreign_code(task: Task) -> bool:
    custom = (
        task.get_config("process_results")
        or any(
            callable(step.get("function")) for entry in task.get_config("filter_list") or () for step in entry["filter"]
        )
        or any(_is_foreign_metric(entry.get("metric")) for entry in task.get_config("metric_list") or ())
    )
    return bool(custom) or type(task).__name__ != "ConfigurableTask"


def _is_foreign_metric(metric: Any) -> bool:
    """Whether a metric is the task's own: a function, or the name under which the task's Python registered one."""
    function = metric_registry.get(metric, None) if isinstance(metric, str) else metric
    return callable(function) and function.__module__ != _LIBRARY_METRICS
