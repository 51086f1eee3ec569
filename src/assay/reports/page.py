"""What an HTML report shows above its samples, as data for the template."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from assay.diagnosis import Triage
from assay.errors import FileFormatError
from assay.reports.endpoints import endpoint_rows
from assay.reports.gate import asked_words
from assay.reports.remarks import other_models
from assay.results.check_results import worst
from assay.results.groups import leaves
from assay.results.sample_files import may_name_file, samples_file_of
from assay.runs.files import read_run
from assay.scoring.measure import Score, interval_of, number_at, stderr_of
from assay.types import FailureCause, score_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from assay.reports.page_charts import ResponseFigures
    from assay.results.check_results import CheckResult, EvidenceCourse, Verdict
    from assay.results.document import Provenance, ResultsDocument, Totals
    from assay.runs.compare import Comparison
    from assay.types import FailedSample

_FAILURES_NAMED = 8
_RESUMED = 1.02
"""Answers spread over more than the run's own time by this factor: some were there before it was resumed."""


class Part(msgspec.Struct, frozen=True):
    """A group and its tasks, for the chart of subtasks."""

    name: str
    metric: str
    whole: Score | None
    tasks: list[Score]


class Figure(msgspec.Struct, frozen=True):
    """One number with its name."""

    name: str
    value: str
    note: str = ""


class RunOutline(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run as its results file describes it; of lm-eval's runs only scores and versions are known."""

    model: str
    verdict: Verdict | None
    """The worst of its checks; None without checks."""
    checks: tuple[CheckResult, ...]
    scores: tuple[Score, ...]
    evidence: tuple[EvidenceCourse, ...]
    stopped: str | None
    """How much was asked, if the run stopped early."""
    members: dict[str, list[str]]
    """By group, its tasks and subgroups."""
    totals: Totals | None
    triage: Triage | None
    """Why the run scored low, where it was asked."""
    warnings: list[str]
    failures: tuple[FailedSample, ...]
    endpoints: list[tuple[str, ...]]
    """A row for each of several endpoints; see :func:`assay.reports.endpoints.endpoint_rows`."""
    provenance: Provenance | None
    versions: dict[str, str]

    @property
    def main_scores(self) -> list[Score]:
        """The scores of groups, and of tasks that are in no group with a score."""
        scored = {score.task for score in self.scores}
        inner = {part for group in self.members if group in scored for part in self._below(group)}
        return [score for score in self.scores if score.task not in inner]

    @property
    def parts(self) -> list[Part]:
        """Groups with their tasks, one entry a metric."""
        names, shown = {score.task for score in self.scores}, {score.task for score in self.main_scores}
        found = []
        for group in self.members:
            tasks = [name for name in leaves(group, self.members) if name in names]
            if group in tasks or not tasks:
                continue
            if group not in names and not shown.isdisjoint(tasks):
                continue  # its tasks stand at the top
            for metric in dict.fromkeys(score.metric for score in self.scores if score.task in tasks):
                rows = [score for score in self.scores if score.task in tasks and score.metric == metric]
                whole = next((score for score in self.scores if (score.task, score.metric) == (group, metric)), None)
                found.append(Part(group, metric, whole, rows))
        return found

    @property
    def outcome_rows(self) -> list[Score]:
        """One score a task, filter and different counts, of those with outcomes; groups first."""
        rows: dict[Any, Score] = {}
        for score in self.scores:
            if score.outcomes:
                rows.setdefault((score.task, tuple(sorted(score.outcomes.items()))), score)
        return sorted(rows.values(), key=lambda score: not score.is_group)

    @property
    def failure_causes(self) -> list[tuple[FailureCause, int, list[FailedSample]]]:
        """Cause, count, and some of the failures."""
        counts = Counter(failure.cause for failure in self.failures)
        return [
            (cause, count, [failure for failure in self.failures if failure.cause is cause][:_FAILURES_NAMED])
            for cause, count in counts.most_common()
        ]

    @property
    def provenance_text(self) -> str:
        """Specification, server, data and versions, indented."""
        return json.dumps(msgspec.to_builtins(self.provenance), indent=2, ensure_ascii=False)

    def thresholds(self, score: Score) -> list[float]:
        """The thresholds that checks set for a score."""
        held = [check for check in self.checks if (check.task, check.metric) == (score.task, score.metric)]
        return [bound for check in held for bound in (check.min, check.max) if bound is not None]

    def _below(self, group: str) -> set[str]:
        """Everything in a group and in its subgroups."""
        return {part for member in self.members.get(group, ()) for part in (member, *self._below(member))}

    def chosen_keys(self) -> dict[str, str]:
        """By task, the metric key that says whether its samples are right: the first check's, else the first."""
        chosen: dict[str, str] = {}
        for check in self.checks:
            for leaf in leaves(check.task, self.members):
                chosen.setdefault(leaf, check.metric)
        for score in self.scores:
            chosen.setdefault(score.task, score.metric)
        return chosen

    def tasks_without_wrong(self) -> set[str]:
        """The tasks whose score is better the lower it is: 0 is no wrong answer there."""
        chosen = self.chosen_keys()
        return {
            score.task
            for score in self.scores
            if score.higher_is_better is False and score.metric == chosen[score.task]
        }

    def figures(self, measured: ResponseFigures) -> list[Figure]:
        """Tokens, latency and throughput in words; none if the run did not record them."""
        totals = self.totals
        if totals is None or not totals.answers:
            return []
        seconds, span = totals.seconds, measured.span
        resumed = span is not None and span > _RESUMED * seconds
        figures = [
            Figure("answers", _grouped(totals.answers), f"{_grouped(totals.attempts)} attempts"),
            Figure("prompt tokens", _grouped(totals.prompt_tokens)),
            Figure("completion tokens", _grouped(totals.completion_tokens), _usage(totals)),
        ]
        for words, quantiles in (("first token", totals.ttft_seconds or {}), ("latency", totals.latency_seconds)):
            known = ((name, value) for name, value in quantiles.items() if value is not None)
            figures += [Figure(f"{words} {name}", _seconds(value)) for name, value in known]
        figures.append(Figure("duration", _seconds(seconds), "of the resumed part alone" if resumed else ""))
        if seconds and not resumed:
            figures.append(Figure("answers a second", _rate(totals.answers / seconds)))
            if totals.completion_tokens:
                figures.append(Figure("completion tokens a second", _rate(totals.completion_tokens / seconds)))
        return figures


def outline(file: Path, document: ResultsDocument) -> RunOutline:
    """The outline of the run that a results file holds.

    Raises:
        FileFormatError: what it holds of triage is damaged, or a samples file of lm-eval's.
    """
    additions, checks = document.additions, document.additions.checks or ()
    stopped, versions = additions.early_stopping, document.provenance.versions or {}
    return RunOutline(
        model=document.model_name or "?",
        verdict=worst(checks) if checks else None,
        checks=checks,
        scores=tuple(_scores(file, document)) if additions.scores is None else additions.scores,
        evidence=additions.evidence or (),
        stopped=None if stopped is None else asked_words(stopped),
        members={name: below for name, below in document.group_subtasks.items() if below},
        totals=additions.totals,
        triage=recorded_triage(file, additions.triage),
        warnings=other_models(additions.totals, document.model_name or "?"),
        failures=additions.failures or (),
        endpoints=endpoint_rows(additions.endpoints or ()),
        provenance=additions.provenance,
        versions={"lm_eval": str(document.lm_eval_version or "?"), **versions},
    )


def recorded_triage(file: Path, recorded: Mapping[str, Any] | None) -> Triage | None:
    """The triage that a results file holds; None if it holds none.

    Raises:
        FileFormatError: it is damaged, or of a later release.
    """
    try:
        return None if recorded is None else msgspec.convert({"run": str(file), **recorded}, Triage)
    except msgspec.ValidationError as error:
        raise FileFormatError(f"cannot read {file} as a results file: {error}") from error


def score_bounds(scores: Iterable[Score]) -> tuple[float, float] | None:
    """The axis on which scores are drawn: 0 to 1; None where one lies outside."""
    known = [score.value for score in scores if score.value is not None]
    return (0.0, 1.0) if known and all(0 <= value <= 1 for value in known) else None


def difference_bounds(comparison: Comparison) -> tuple[float, float]:
    """The axis on which differences are drawn, with 0 in its middle."""
    ends = [abs(change.difference) for change in comparison.changes]
    ends += [abs(end) for change in comparison.changes if (i := change.interval) for end in (i.low, i.high)]
    most = max(ends, default=0.0) or 0.01
    return -most, most


def has_samples(file: Path, tasks: Iterable[str]) -> bool:
    """Whether the run kept its samples; lm-eval does not unless asked to."""
    return any(may_name_file(task) and samples_file_of(file, task).exists() for task in tasks)


def _scores(file: Path, document: ResultsDocument) -> list[Score]:
    """The scores of a run that lm-eval wrote, with intervals if it logged samples."""
    run = read_run(file) if has_samples(file, document.configs) else None
    scores = []
    for name, entry in document.results.items():
        task = None if run is None else run.tasks.get(name)
        counts = [document.n_samples[leaf] for leaf in document.leaves(name) if leaf in document.n_samples]
        for key in score_keys(entry):
            values = list(task.scores.get(key, ())) if task else []
            listed = [list(value) if isinstance(value, tuple) else value for value in values]
            scores.append(
                Score(
                    task=name,
                    metric=key,
                    value=number_at(entry, key),
                    stderr=stderr_of(entry, key),
                    interval=interval_of(listed) if listed else None,
                    bounds=None,
                    n=sum(count.effective for count in counts),
                    outcomes={},
                    higher_is_better=task.higher_is_better.get(key) if task else None,
                    is_group=name in document.group_subtasks,
                )
            )
    return scores


def _usage(totals: Totals) -> str:
    missing = totals.answers_without_usage
    return f"{_grouped(missing)} answers without a count" if missing else ""


def _grouped(number: Any) -> str:
    return f"{int(number):,}"


def _rate(value: float) -> str:
    return _grouped(value) if value >= 100 else f"{value:.3g}"


def _seconds(value: float) -> str:
    if value >= 120:
        minutes, seconds = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
