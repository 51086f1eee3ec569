"""Judges a full run against a baseline: is it worse by more than the margin, whatever failed documents would score?"""

from __future__ import annotations

from fractions import Fraction
from math import fsum, isfinite, isnan
from typing import TYPE_CHECKING

import msgspec

from assay.checks.exact import exact_total
from assay.checks.verdicts import Bound, describe, format_beside, unknown_range_message, verdict_of_bounds
from assay.results.check_results import CheckResult, Verdict
from assay.runs.pairing import pair_tasks
from assay.stats.paired import Flips, mcnemar, newcombe_interval, paired_difference
from assay.stats.strata import stratified_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.checks.scope import Scope
    from assay.runs.record import RecordedRun, Score, TaskRecord
    from assay.stats.intervals import Interval
    from assay.stats.validate import Support
    from assay.types import Check

_MISMATCHES_NAMED = 3


def judge_against_baseline(
    check: Check, scope: Scope, baseline: RecordedRun, candidate: Mapping[str, TaskRecord]
) -> CheckResult:
    """Compare a full run with the baseline, on the documents that both runs have.

    Args:
        check: a resolved check with a baseline.
        scope: the tasks that it covers.
        baseline: the earlier run.
        candidate: the run's tasks.
    """
    missing = [name for name in scope.tasks if _lacks(baseline.tasks.get(name), check.metric)]
    if missing:
        reason = f"the baseline has no documents scored by {check.metric} for {', '.join(missing)}"
        return describe(check, Verdict.INVALID, reason)
    unscored = [name for name in scope.tasks if check.metric not in candidate[name].scores]
    if unscored:
        reason = f"{', '.join(unscored)}: {check.metric} is no mean over documents, or nothing was scored"
        return describe(check, Verdict.INVALID, reason)
    pairings = [pair_tasks(baseline.tasks[name], candidate[name]) for name in scope.tasks]
    changes = [f"{pairing.candidate.name}: {change}" for pairing in pairings for change in pairing.mismatches]
    if changes and not check.allow_mismatch:
        return describe(check, Verdict.INVALID, mismatch_message(changes))
    found = [pairing.scores(check.metric) for pairing in pairings]
    if any(_is_nan(score) for pairs in found for pair in pairs for score in pair):
        return describe(check, Verdict.INVALID, "a score is not a number (NaN), so neither is the difference")
    result = _judge(check, scope, [_Stratum.of(pairs, scope.range) for pairs in found])
    if not check.allow_mismatch:
        return result
    changes += [
        f"{pairing.candidate.name}: {pairing.not_asked} of the baseline's documents were not asked"
        for pairing in pairings
        if pairing.not_asked
    ]
    return msgspec.structs.replace(result, reason=f"{result.reason}{allowed_note(changes)}")


def mismatch_message(changes: Sequence[str]) -> str:
    """Why a baseline cannot be compared with, and what to do."""
    return f"the baseline does not match: {_listed(changes)}; save a new baseline, or allow the mismatch"


def allowed_note(changes: Sequence[str]) -> str:
    """The end of a reason: which mismatches the check allowed; empty if there are none."""
    return f"; allowed: {_listed(changes)}" if changes else ""


def _listed(changes: Sequence[str]) -> str:
    more = f" and {len(changes) - _MISMATCHES_NAMED} more changes" if len(changes) > _MISMATCHES_NAMED else ""
    return "; ".join(changes[:_MISMATCHES_NAMED]) + more


def _is_nan(score: Score | None) -> bool:
    return isinstance(score, float) and isnan(score)


def _lacks(task: TaskRecord | None, metric: str) -> bool:
    return task is None or not task.scores.get(metric)


class _Stratum(msgspec.Struct, frozen=True):
    """One task's pairs of scores."""

    low: Fraction | float
    """Least mean difference that is possible whatever the failed documents would score: exact, or infinite."""
    high: Fraction | float
    n: int
    failed: int
    before: list[float]
    """The baseline's scores of the documents that both runs scored; a document's verdicts follow one another."""
    after: list[float]
    documents: list[int]
    """The document of each entry of ``before``."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[Score | None, Score | None]], support: Support | None) -> _Stratum:
        """From pairs of scores.

        Args:
            pairs: baseline and candidate, document by document; None where a document failed.
            support: the range of scores; None if it is not known.
        """
        unknown: list[tuple[Fraction | float, Fraction | float]] = []
        before: list[float] = []
        after: list[float] = []
        documents: list[int] = []
        known = [score for pair in pairs for score in pair if score is not None]
        if support is not None and not all(
            support[0] <= value <= support[1] for one in known for value in _values(one)
        ):
            support = None
        if any(isinstance(score, tuple) for score in known) and (None, None) in pairs:
            support = None  # nobody knows how many verdicts such a document has
        for place, (old, new) in enumerate(pairs):
            if old is not None and new is not None:
                before += _values(old)
                after += _values(new)
                documents += [place] * len(_values(new))
            else:
                unknown += _possible(old, new, support)
        n = len(after) + len(unknown)
        failed = len(pairs) - len(set(documents))
        if not n:
            return cls(float("-inf"), float("inf"), len(pairs), failed, before, after, documents)
        changed = exact_total(after) - exact_total(before)
        low, high = ((changed + sum(ends[side] for ends in unknown)) / n for side in (0, 1))
        return cls(low, high, len(pairs), failed, before, after, documents)

    @property
    def difference(self) -> Fraction:
        return (exact_total(self.after) - exact_total(self.before)) / len(self.after)

    @property
    def flips(self) -> tuple[int, int]:
        """How many documents' scores fell, and how many rose."""
        totals: dict[int, float] = {}
        for place, old, new in zip(self.documents, self.before, self.after, strict=True):
            totals[place] = totals.get(place, 0.0) + new - old
        return sum(total < 0 for total in totals.values()), sum(total > 0 for total in totals.values())

    @property
    def right_or_wrong(self) -> bool:
        return len(set(self.documents)) == len(self.documents) and set(self.before) | set(self.after) <= {0.0, 1.0}

    def interval(self) -> Interval | None:
        """95 % interval for the difference."""
        fell, rose = self.flips
        if self.right_or_wrong:
            both_right = int(fsum(self.before)) - fell
            return newcombe_interval(Flips(both_right, fell, rose, len(self.before) - both_right - fell - rose))
        if len(set(self.documents)) < 2:
            return None
        repeated = len(self.documents) > len(set(self.documents))
        return paired_difference(self.before, self.after, clusters=self.documents if repeated else None).interval


def _possible(
    old: Score | None, new: Score | None, support: Support | None
) -> list[tuple[Fraction | float, Fraction | float]]:
    """Least and greatest possible difference, for each value of a document that failed in one run or both."""
    if support is None:
        return [(float("-inf"), float("inf"))]
    worst, best = map(Fraction, support)
    if new is not None:
        return [(value - best, value - worst) for value in map(Fraction, _values(new))]
    if old is not None:
        return [(worst - value, best - value) for value in map(Fraction, _values(old))]
    return [(worst - best, best - worst)]


def _values(score: Score) -> list[float]:
    return [float(value) for value in score] if isinstance(score, tuple) else [score]


def _judge(check: Check, scope: Scope, strata: Sequence[_Stratum]) -> CheckResult:
    failed = sum(stratum.failed for stratum in strata)
    if not all(stratum.after for stratum in strata):
        return describe(check, Verdict.INVALID, f"no document was scored in both runs ({failed} failed)")
    weights = [stratum.n if scope.weighted_by_size else 1 for stratum in strata]
    low, high, difference, value = (
        float(sum(weight * part for weight, part in zip(weights, parts, strict=True)) / sum(weights))
        for parts in (
            [stratum.low for stratum in strata],
            [stratum.high for stratum in strata],
            [stratum.difference for stratum in strata],
            [exact_total(stratum.after) / len(stratum.after) for stratum in strata],
        )
    )
    fell, rose = (sum(stratum.flips[side] for stratum in strata) for side in (0, 1))
    lost, gained = (fell, rose) if scope.higher_is_better else (rose, fell)
    verdict, reason = _verdict(check, scope, (low, high, difference), failed)
    return describe(
        check,
        verdict,
        f"{reason}; {lost} answer{'' if lost == 1 else 's'} lost, {gained} gained",
        value=value,
        difference=difference,
        interval=_interval(strata, weights),
        p_value=mcnemar(lost, gained, "worse") if all(stratum.right_or_wrong for stratum in strata) else None,
        lost=lost,
        gained=gained,
        n=sum(stratum.n for stratum in strata),
        population=sum(stratum.n for stratum in strata),
        failed=failed,
    )


def _verdict(
    check: Check, scope: Scope, low_high_difference: tuple[float, float, float], failed: int
) -> tuple[Verdict, str]:
    low, high, difference = low_high_difference
    margin = check.margin or 0.0
    bound = Bound(-margin if scope.higher_is_better else margin, scope.higher_is_better)
    if failed and scope.range is None and not isfinite(low):
        return Verdict.INVALID, unknown_range_message(failed)
    if failed:
        without = "it" if failed == 1 else "them"
        context = f"{difference:+.4f} against the baseline without {without}; margin {margin:.10g}"
        return verdict_of_bounds(bound, (low, high), failed, context, "+")
    shown = format_beside(bound.value, difference, "+")
    if bound.met_by(difference):
        return Verdict.PASS, f"{shown} against the baseline, within the margin of {margin:.10g}"
    return Verdict.FAIL, f"{shown} against the baseline, beyond the margin of {margin:.10g}"


def _interval(strata: Sequence[_Stratum], weights: Sequence[int]) -> Interval | None:
    intervals = [interval for stratum in strata if (interval := stratum.interval()) is not None]
    if len(intervals) < len(strata):
        return None
    if len(strata) == 1:
        return intervals[0]
    return stratified_interval([float(stratum.difference) for stratum in strata], intervals, weights)
