"""A check followed document by document, until the evidence decides it."""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from assay.checks.against_baseline import mismatch_words
from assay.checks.verdicts import CheckResult, Verdict, demand_of, describe
from assay.errors import NothingMeasuredError, SpecificationError
from assay.runs.pairing import BaselineDocuments
from assay.stats.course import Course, course_of
from assay.stats.plans import Decision, margin_plan, threshold_plan
from assay.stats.sequential import SequentialTest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.checks.scope import Scope
    from assay.runs.record import RecordedRun, Score
    from assay.stats.intervals import Interval
    from assay.stats.plans import SequentialPlan
    from assay.types import Check

_ROUNDING = 1e-6


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """How the evidence on one check grew."""

    task: str
    metric: str
    demand: str
    """What the check demands, in words."""
    is_difference: bool
    """The figures are differences from a baseline, not scores."""
    decided_after: int | None
    """Documents after which the check's own test decided."""
    course: Course


class ScoreBook(Protocol):
    """Scores of the documents answered so far."""

    def value(self, task: str, doc_id: int, metric: str) -> Any:
        """A document's score under a metric key; None if it failed."""

    def identity(self, task: str, doc_id: int) -> tuple[str, str]:
        """A scored document's short hashes, of itself and of its prompt."""


class FollowedCheck:
    """One check and the evidence so far. Documents must come in the random order, those of its tasks alone."""

    def __init__(
        self, check: Check, scope: Scope, sizes: Mapping[str, int], baseline: RecordedRun | None = None
    ) -> None:
        """Begin without evidence.

        Args:
            check: a resolved check.
            scope: its tasks.
            sizes: how many documents each task has.
            baseline: the earlier run, if the check has one.

        Raises:
            SpecificationError: the threshold is no score between 0 and 1.
        """
        self.check = check
        self.scope = scope
        self.test: SequentialTest | None = None
        """None where the check can only be judged when all documents are answered."""
        self.mismatch: str | None = None
        self.decision = Decision.OPEN
        self.seen = 0
        self._weights = scope.weights(sizes)
        self._population = scope.population(sizes)
        self._before = None if baseline is None else _Before(baseline, scope, check.metric)
        self._scored = 0
        self._sum = self._sum_of_weights = 0.0
        self._lost = self._gained = 0
        if scope.is_mean:
            self.test = SequentialTest(plan_of(check, scope, self._population, self._weights))

    @property
    def is_open(self) -> bool:
        """Whether more documents could still decide it."""
        return self.decision is Decision.OPEN and self.mismatch is None

    def observe(self, task: str, doc_id: int, book: ScoreBook) -> None:
        """Take the next document's score into account, unless all is decided."""
        if not self.is_open:
            return
        self.seen += 1
        value = book.value(task, doc_id, self.check.metric)
        self._scored += value is not None
        if value is not None and not isinstance(value, int | float):
            self.test = None  # a metric of another kind than its name promised: only the whole run can tell
            return
        score = None if value is None else float(value)
        if score is not None:
            self._sum += self._weights[task] * score
            self._sum_of_weights += self._weights[task]
        evidence = score if self._before is None else self._difference(task, doc_id, score, book)
        if self.test is None or self.mismatch is not None:
            return
        try:
            self.decide(self.test.add(evidence, self._weights[task]))
        except SpecificationError:
            self.test = None  # a score outside [0, 1]

    def decide(self, decision: Decision) -> None:
        """Settle the check: by its own test, or by one that several checks share."""
        if self.decision is Decision.OPEN:
            self.decision = decision

    def _difference(self, task: str, doc_id: int, score: float | None, book: ScoreBook) -> float | None:
        if self._before is None:
            return None
        identity = None if score is None else book.identity(task, doc_id)
        before, mismatch = self._before.pair(task, doc_id, identity)
        if not self.check.allow_mismatch:
            self.mismatch = mismatch
        if score is None or not isinstance(before, float):
            return None  # no evidence for either side, as if it had failed
        worse = score < before if self.scope.higher_is_better else score > before
        self._lost += worse
        self._gained += score != before and not worse
        return score - before

    @property
    def value_so_far(self) -> float | None:
        """The score over the documents that have one; safe to ask for while they are observed."""
        return self._sum / self._sum_of_weights if self._sum_of_weights else None

    def evidence(self) -> Evidence | None:
        """The course of the evidence; None where nothing was followed."""
        if self.test is None or not self.test.seen:
            return None
        return Evidence(
            task=self.check.task or "",
            metric=self.check.metric,
            demand=demand_of(self.check),
            is_difference=self._before is not None,
            decided_after=self.test.decided_after,
            course=course_of(self.test),
        )

    def result(self) -> CheckResult:
        """What it came to, where not all documents were answered."""
        figures: dict[str, Any] = {
            "n": self.seen,
            "population": self._population,
            "value": self.value_so_far,
            "failed": self.test.failed if self.test else 0,
        }
        if self._before is not None:
            figures |= {"lost": self._lost, "gained": self._gained}
        if self.mismatch is not None:
            return describe(self.check, Verdict.INVALID, self.mismatch, **figures)
        so_far = f"{self.seen} of {self._population} documents"
        if not self._scored:
            return describe(self.check, Verdict.INVALID, f"no document was scored ({so_far} asked)", **figures)
        if self.test is None:
            reason = f"the budget ended after {so_far}; this check is decided only after all of them"
            return describe(
                self.check, Verdict.INCONCLUSIVE, reason, **figures, more_needed=self._population - self.seen
            )
        interval = _possible_means(self.test)
        figures["interval"] = interval
        if self._before is not None and self.test.failed < self.test.seen:
            figures["difference"] = self.test.estimate
        sure = f"between {interval.low:.4f} and {interval.high:.4f} with {interval.confidence:.4g} confidence"
        known = f"{_estimate(figures)} ({sure})"
        if self.decision in (Decision.PASS, Decision.FAIL):
            verdict = Verdict(self.decision.value)
            demand = "within" if verdict is Verdict.PASS else "beyond"
            held = f"{demand} the margin of {self.check.margin:g}" if self._before else _held(self.check, verdict)
            shared = "" if self.test.decision is self.decision else " by Holm's method, together with the other checks"
            return describe(self.check, verdict, f"decided after {so_far}{shared}: {known}; {held}", **figures)
        more = _forecast(self.test)
        reason = f"the budget ended after {so_far}: {known}; some {more} more would probably decide"
        return describe(self.check, Verdict.INCONCLUSIVE, reason, **figures, more_needed=more)


def plan_of(check: Check, scope: Scope, population: int, weights: Mapping[str, float]) -> SequentialPlan:
    """The sequential plan of a check.

    Raises:
        SpecificationError: the threshold is no score between 0 and 1.
    """
    resolution = 1.0 if scope.right_or_wrong and set(weights.values()) == {1.0} else None
    if check.baseline is not None:
        return margin_plan(
            population,
            check.margin or 0.0,
            check.alpha,
            higher_is_better=scope.higher_is_better,
            resolution=resolution,
        )
    higher_is_better = check.min is not None
    threshold = check.min if check.min is not None else check.max or 0.0
    if not 0 <= threshold <= 1:
        raise SpecificationError(
            f"{check.task} {check.metric}: {threshold:g} does not lie between 0 and 1; "
            "a metric of another range can only be judged by a full run, without early stopping"
        )
    return threshold_plan(population, threshold, check.alpha, higher_is_better=higher_is_better, resolution=resolution)


class _Before:
    """What the baseline knows of each document, paired as in a full run: by what it says, wherever it moved."""

    def __init__(self, baseline: RecordedRun, scope: Scope, metric: str) -> None:
        self._metric = metric
        self._tasks = {name: baseline.tasks[name] for name in scope.tasks}
        self._documents = {name: BaselineDocuments(task) for name, task in self._tasks.items()}

    def pair(self, task: str, doc_id: int, identity: tuple[str, str] | None) -> tuple[Score | None, str | None]:
        """The document's score then, None if it failed; and why it cannot be compared, None if it can.

        Args:
            task: the task.
            doc_id: the document.
            identity: its hashes; None if it failed now.
        """
        before = self._tasks[task]
        place = None if identity is None else self._documents[task].find(doc_id, identity[0])
        if identity is None or place is None:
            is_known = doc_id in before.failed or (identity is None and doc_id in before.doc_ids)
            return None, None if is_known else mismatch_words([f"{task}: data: document {doc_id} is not in it"])
        changed = identity[1] != before.prompts[place]
        reason = mismatch_words([f"{task}: prompts: that of document {doc_id} differs"]) if changed else None
        return before.scores[self._metric][place], reason


def _estimate(figures: Mapping[str, Any]) -> str:
    difference = figures.get("difference")
    return f"{figures['value']:.4f}" if difference is None else f"{difference:+.4f} against the baseline"


def _held(check: Check, verdict: Verdict) -> str:
    if check.min is not None:
        return f"minimum {check.min:g} {'met' if verdict is Verdict.PASS else 'missed'}"
    return f"maximum {check.max:g} {'kept' if verdict is Verdict.PASS else 'exceeded'}"


def _possible_means(test: SequentialTest) -> Interval:
    """The confidence sequence, its ends moved inwards to the next mean that the benchmark can have at all."""
    interval, resolution = test.interval(), test.plan.resolution
    if resolution is None:
        return interval
    step = resolution / test.plan.population
    low, high = ceil(interval.low / step - _ROUNDING) * step, floor(interval.high / step + _ROUNDING) * step
    return msgspec.structs.replace(interval, low=min(low, high), high=max(low, high))


def _forecast(test: SequentialTest) -> int:
    try:
        return test.forecast()
    except NothingMeasuredError:
        return test.plan.population - test.seen
