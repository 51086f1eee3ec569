"""A check that is updated document by document until the evidence decides it."""

from __future__ import annotations

from math import ceil, floor, isnan
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from assay.checks.against_baseline import allowed_note, mismatch_message
from assay.checks.verdicts import counted_samples, describe, refuse_outside_range
from assay.errors import SpecificationError
from assay.results.check_results import CheckResult, EvidenceCourse, Verdict, demand_of
from assay.runs.pairing import BaselineDocuments
from assay.stats.course import course_of
from assay.stats.plans import Decision, margin_plan, threshold_plan
from assay.stats.sequential import SequentialTest
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.checks.scope import Scope
    from assay.runs.record import RecordedRun, Score
    from assay.stats.intervals import Interval
    from assay.stats.plans import SequentialPlan, Weight
    from assay.types import Check

_ROUNDING = 1e-6


class ScoreLookup(Protocol):
    """Scores of the documents answered so far."""

    def value(self, task: str, doc_id: int, metric: str) -> Any:
        """A document's score under a metric key; None if it failed."""

    def identity(self, task: str, doc_id: int) -> tuple[str, str]:
        """A scored document's short hashes: of the document and of its prompt."""


class SequentialCheck:
    """One check and the evidence so far. It must be given the documents of its tasks, in the random order."""

    def __init__(
        self, check: Check, scope: Scope, sizes: Mapping[str, int], baseline: RecordedRun | None = None
    ) -> None:
        """Begin without evidence.

        Args:
            check: a resolved check.
            scope: its tasks.
            sizes: by task, how many documents it has.
            baseline: the earlier run, if the check has a baseline.

        Raises:
            SpecificationError: the threshold is outside the range of scores.
        """
        self.check = check
        self.scope = scope
        self.test: SequentialTest | None = None
        """None if the check can only be judged when all documents are answered."""
        self.not_early_because = why_not_early(scope, check.metric)
        """Why ``test`` is None; empty if it is not."""
        self.fault: str | None = None
        """Why the check is invalid: the baseline does not match, or a score lies outside the stated range."""
        self.decision = Decision.OPEN
        self.seen = 0
        self._weights = scope.weights(sizes)
        self._population = scope.population(sizes)
        self._baseline = None if baseline is None else _BaselineScores(baseline, scope, check.metric)
        self._scored = 0
        self._scores = _MeanSoFar(scope)
        self._differences = _MeanSoFar(scope)
        self._lost = self._gained = 0
        self._mismatches: list[str] = []
        self._alpha = check.error_rate
        if scope.may_stop_early:
            self.test = SequentialTest(plan_of(check, scope, self._population, self._weights))

    @property
    def is_open(self) -> bool:
        """Whether more documents could still decide it."""
        return self.decision is Decision.OPEN and self.fault is None

    def observe(self, task: str, doc_id: int, lookup: ScoreLookup) -> None:
        """Take the next document's score into account, unless the check is decided."""
        if not self.is_open:
            return
        self.seen += 1
        value = lookup.value(task, doc_id, self.check.metric)
        self._scored += value is not None
        if value is not None and (not isinstance(value, int | float) or isnan(value)):
            self._abandon_test("a score that is no number was given")
            return
        score = None if value is None else float(value)
        if score is not None:
            self._scores.add(task, score)
        before = None if self._baseline is None else self._baseline_score(self._baseline, task, doc_id, score, lookup)
        if outside := out_of_range_message([score, before], task, doc_id, self.scope):
            if self.check.range is not None:
                self.fault = self.fault or outside
            self._abandon_test(outside)
        if self.test is not None and self.fault is None:
            # A document without a score in either run is no evidence, as if it had failed.
            paired = None if score is None or before is None else score - before
            if paired is not None:
                self._differences.add(task, paired)
            self.decide(self.test.add(score if self._baseline is None else paired, self._weights[task]))

    def _abandon_test(self, why: str) -> None:
        """Stop testing, because an assumption of the test does not hold; all documents decide."""
        if self.test is not None:
            self.test, self.not_early_because = None, why

    def decide(self, decision: Decision, shared_alpha: float | None = None) -> None:
        """Record the decision, if there is none yet.

        Args:
            decision: of the check's own test, or of Holm's method for several checks.
            shared_alpha: the error rate of all those checks together; None for the check's own test.
        """
        if self.decision is Decision.OPEN:
            self.decision = decision
            self._alpha = self._alpha if shared_alpha is None else shared_alpha

    def _baseline_score(
        self, baseline: _BaselineScores, task: str, doc_id: int, score: float | None, lookup: ScoreLookup
    ) -> float | None:
        """The document's score in the baseline, counted as lost or gained; None if it has no such score."""
        identity = None if score is None else lookup.identity(task, doc_id)
        before, mismatch = baseline.pair(task, doc_id, identity)
        if mismatch is not None:
            self._mismatches.append(mismatch)
        if self._mismatches and not self.check.allow_mismatch:
            self.fault = mismatch_message(self._mismatches)
        if not isinstance(before, float):
            return None
        if score is not None:
            worse = score < before if self.scope.higher_is_better else score > before
            self._lost += worse
            self._gained += score != before and not worse
        return before

    @property
    def value_so_far(self) -> float | None:
        """Mean over the documents that have a score; another thread may read it during the run."""
        return self._scores.value

    def evidence(self) -> EvidenceCourse | None:
        """How the evidence grew; None if there is no test or it has seen nothing."""
        if self.test is None or not self.test.seen:
            return None
        return EvidenceCourse(
            task=self.check.task or "",
            metric=self.check.metric,
            demand=demand_of(self.check),
            is_difference=self._baseline is not None,
            decided_after=self.test.decided_after,
            decided_together=self.decision is not Decision.OPEN and self.test.decision is not self.decision,
            course=course_of(self.test),
        )

    def result(self) -> CheckResult:
        """The check's verdict, if not all documents were answered."""
        figures: dict[str, Any] = {
            "n": self.seen,
            "population": self._population,
            "value": self.value_so_far,
            "failed": self.seen - self._scored if self.test is None else self.test.failed,
        }
        if self._baseline is not None:
            figures |= {"lost": self._lost, "gained": self._gained}
        if self.fault is not None:
            return describe(self.check, Verdict.INVALID, self.fault, **figures)
        asked = f"{self.seen} of {self._population} documents"
        if not self._scored:
            answered = f"no document was scored: {asked} were asked, and all failed"
            none_came = f"no answer came in time to any of {self._population} documents"
            return describe(self.check, Verdict.INVALID, answered if self.seen else none_came, **figures)
        if self.test is None:
            mean = "" if figures["value"] is None else f"so far {figures['value']:.4f}; "
            reason = (
                f"the budget ended after {asked}; {mean}only all documents together decide: {self.not_early_because}"
            )
            return describe(
                self.check, Verdict.INCONCLUSIVE, reason, **figures, more_needed=self._population - self.seen
            )
        interval = _possible_means(self.test)
        figures["interval"] = interval
        if self._baseline is not None and self._differences.value is not None:
            figures["difference"] = self._differences.value
        range_words = _range_words(interval, is_difference=self._baseline is not None)
        if self.decision in (Decision.PASS, Decision.FAIL):
            verdict = Verdict(self.decision.value)
            figures["alpha"] = self._alpha
            shared = "" if self.test.decision is self.decision else f" at alpha {self._alpha:.2g} by Holm's method"
            reason = (
                f"after {asked}: {_decided_words(self.check, verdict)}{shared} ({range_words}); {_mean_words(figures)}"
                f"{_failures(self.test.failed)}{allowed_note(self._mismatches)}"
            )
            return describe(self.check, verdict, reason, **figures)
        more = _forecast(self.test)
        ahead = "too few to say how many more it takes" if more is None else f"about {more} more would probably decide"
        reason = f"the budget ended after {asked}, undecided ({range_words}); {_mean_words(figures)}; {ahead}"
        return describe(self.check, Verdict.INCONCLUSIVE, reason, **figures, more_needed=more)


class _MeanSoFar:
    """A mean over the documents so far, with each task's share in the full run's score, as far as it has any."""

    def __init__(self, scope: Scope) -> None:
        self._is_pooled = scope.weighted_by_size
        self._totals = dict.fromkeys(scope.tasks, 0.0)
        self._counts = dict.fromkeys(scope.tasks, 0)

    def add(self, task: str, value: float) -> None:
        self._totals[task] += value
        self._counts[task] += 1

    @property
    def value(self) -> float | None:
        """None without any document."""
        known = [task for task, count in self._counts.items() if count]
        if not known:
            return None
        if self._is_pooled:
            return sum(self._totals.values()) / sum(self._counts.values())
        return sum(self._totals[task] / self._counts[task] for task in known) / len(known)


def plan_of(check: Check, scope: Scope, population: int, weights: Mapping[str, Weight]) -> SequentialPlan:
    """The sequential plan of a check.

    Raises:
        SpecificationError: the threshold is outside the range of scores, or the range is not known.
    """
    if scope.range is None:
        raise SpecificationError(f"{check.task} {check.metric}: {why_not_early(scope, check.metric)}")
    refuse_outside_range(check, scope.range)
    low, high = scope.range
    resolution = 1.0 if scope.right_or_wrong and set(weights.values()) == {1.0} else None
    if check.baseline is not None:
        return margin_plan(
            population,
            check.margin or 0.0,
            check.error_rate,
            largest=high - low,
            higher_is_better=scope.higher_is_better,
            resolution=resolution,
        )
    higher_is_better = check.min is not None
    threshold = check.min if check.min is not None else check.max or 0.0
    return threshold_plan(
        population,
        threshold,
        check.error_rate,
        support=scope.range,
        higher_is_better=higher_is_better,
        resolution=resolution,
    )


def why_not_early(scope: Scope, metric: str) -> str:
    """Why part of the documents cannot decide a check; empty if they can."""
    name = MetricKey.read(metric).metric
    if not scope.is_mean:
        return f"{name} is no mean over documents"
    if scope.range is None:
        return (
            f"the range of {name} is not known; if its scores have limits, state them in the check, "
            "for example range = [0, 1]"
        )
    return ""


def out_of_range_message(scores: Iterable[Any], task: str, doc_id: int, scope: Scope) -> str | None:
    """A message if a document's score lies outside the range; None if none does."""
    if scope.range is None:
        return None
    low, high = scope.range
    for score in scores:
        if scope.right_or_wrong and isinstance(score, int | float) and score not in (0, 1):
            return f"document {doc_id} of {task} scored {score:g}, where the metric is either 0 or 1"
        if isinstance(score, int | float) and not low <= score <= high:
            return f"document {doc_id} of {task} scored {score:g}, outside the range [{low:g}, {high:g}]"
    return None


class _BaselineScores:
    """The baseline's scores, matched by the documents' content, as in a comparison of full runs."""

    def __init__(self, baseline: RecordedRun, scope: Scope, metric: str) -> None:
        self._metric = metric
        self._tasks = {name: baseline.tasks[name] for name in scope.tasks}
        self._documents = {name: BaselineDocuments(task) for name, task in self._tasks.items()}

    def pair(self, task: str, doc_id: int, identity: tuple[str, str] | None) -> tuple[Score | None, str | None]:
        """The document's score in the baseline (None if it failed), and why it cannot be compared (None if it can).

        Args:
            task: the task.
            doc_id: the document.
            identity: its hashes; None if it failed in this run.
        """
        before = self._tasks[task]
        place = None if identity is None else self._documents[task].find(doc_id, identity[0])
        if identity is None or place is None:
            is_known = doc_id in before.failed or (identity is None and doc_id in before.doc_ids)
            return None, None if is_known else f"{task}: data: document {doc_id} is not in it"
        changed = identity[1] != before.prompts[place]
        return before.scores[self._metric][place], (
            f"{task}: prompts: that of document {doc_id} differs" if changed else None
        )


def _range_words(interval: Interval, *, is_difference: bool) -> str:
    """The range of the full run's score or difference."""
    sign = "+" if is_difference else ""
    per_cent = f"{100 * interval.confidence:.4g}"
    shown = "over 99.99" if per_cent == "100" else per_cent
    return f"{shown} % confidence: {interval.low:{sign}.4f} to {interval.high:{sign}.4f}"


def _mean_words(figures: Mapping[str, Any]) -> str:
    """The mean so far, which is biased because the test stops when the mean is clear."""
    difference = figures.get("difference")
    mean = f"{figures['value']:.4f}" if difference is None else f"{difference:+.4f}"
    return f"so far {mean}, not a full-run {'score' if difference is None else 'difference'}"


def _failures(failed: int) -> str:
    if not failed:
        return ""
    whatever = f"whatever {'it' if failed == 1 else 'they'} would have scored"
    return f"; {counted_samples(failed)} failed, and this holds {whatever}"


def _decided_words(check: Check, verdict: Verdict) -> str:
    is_met = verdict is Verdict.PASS
    if check.baseline is not None:
        return f"{'within' if is_met else 'beyond'} the margin of {check.margin:g}"
    if check.min is not None:
        return f"{'at least' if is_met else 'below'} {check.min:g}"
    return f"{'at most' if is_met else 'above'} {check.max:g}"


def _possible_means(test: SequentialTest) -> Interval:
    """The confidence sequence, its ends moved inwards to the nearest mean that the benchmark can have."""
    interval, resolution = test.interval(), test.plan.resolution
    if resolution is None:
        return interval
    steps = test.plan.population / resolution
    low, high = ceil(interval.low * steps - _ROUNDING) / steps, floor(interval.high * steps + _ROUNDING) / steps
    return msgspec.structs.replace(interval, low=min(low, high), high=max(low, high))


def _forecast(test: SequentialTest) -> int | None:
    return test.forecast() if test.seen > test.failed else None
