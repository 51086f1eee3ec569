"""Checks on scores, and their verdicts.

A verdict holds whatever the failed samples would have scored. If they could change it, it is ``invalid``: a check never
passes because something is missing.
"""

from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from assay._util.per_cent import share_hint
from assay.errors import SpecificationError, UnknownMetricError
from assay.results.check_results import CheckResult, Verdict
from assay.tasks.metric_ranges import UNIT
from assay.types import Check, MetricKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.checks.exact import ExactScore
    from assay.scoring.measure import Score


class Bound(NamedTuple):
    """A threshold for a score or difference."""

    value: float
    higher_is_better: bool

    def met_by(self, score: float) -> bool:
        """Whether a score is good enough."""
        return score >= self.value if self.higher_is_better else score <= self.value


def parse_minimum(text: str) -> Check:
    """Read ``[TASK:]METRIC,FILTER=VALUE``, the argument of ``--min``.

    Raises:
        SpecificationError: the text has another form.
    """
    task, metric, number = _parse_demand(text, "minimum")
    return Check(metric=metric, min=number, task=task)


def parse_maximum(text: str) -> Check:
    """Read ``[TASK:]METRIC,FILTER=VALUE``, the argument of ``--max``.

    Raises:
        SpecificationError: the text has another form.
    """
    task, metric, number = _parse_demand(text, "maximum")
    return Check(metric=metric, max=number, task=task)


def parse_range(text: str) -> Check:
    """Read ``[TASK:]METRIC,FILTER=LOW,HIGH``, the argument of ``--range``, as a check without a demand.

    Raises:
        SpecificationError: the text has another form.
    """
    task, metric, ends = _split_argument(text)
    try:
        low, high = map(float, ends.split(","))
    except ValueError:
        low = high = math.nan
    if not metric or not low < high:
        raise SpecificationError(f"'{text}' is no range: write KEY=LOW,HIGH, for example f1,none=0,1")
    return Check(metric=metric, range=(low, high), task=task)


def with_ranges(checks: Sequence[Check], ranges: Sequence[Check]) -> list[Check]:
    """Add to each check the range that was given for its task and metric.

    Raises:
        SpecificationError: a range belongs to no check.
    """
    stated = {(entry.task, entry.metric): entry.range for entry in ranges}
    if unused := stated.keys() - {(check.task, check.metric) for check in checks}:
        task, metric = min(unused, key=str)
        name = f"{task}:{metric}" if task else metric
        raise SpecificationError(f"a range is given for {name}, but no check: write the same key as in --min or --max")
    return [msgspec.structs.replace(check, range=stated.get((check.task, check.metric))) for check in checks]


def _parse_demand(text: str, kind: str) -> tuple[str | None, str, float]:
    task, metric, value = _split_argument(text)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not metric or not math.isfinite(number):
        advice = share_hint(value) or "write KEY=VALUE, for example exact_match,strict-match=0.6"
        raise SpecificationError(f"'{text}' is no {kind}: {advice}")
    return task, metric, number


def _split_argument(text: str) -> tuple[str | None, str, str]:
    """Task, metric and value of ``[TASK:]METRIC=VALUE``; the metric is empty if it or the value is missing."""
    key, _, value = text.rpartition("=")
    task, _, metric = key.rpartition(":")
    return task.strip() or None, metric.strip(), value


def validate_check(check: Check) -> None:
    """Refuse a check that demands nothing, several things, or something impossible.

    Raises:
        SpecificationError: with the value and what would be right.
    """
    name = _name_of(check)
    demands = [field for field in ("min", "max", "baseline") if getattr(check, field) is not None]
    if len(demands) != 1:
        found = " and ".join(demands) or "none"
        raise SpecificationError(f"{name} needs exactly one of min, max and baseline; it has {found}")
    if check.baseline is not None and check.margin is None:
        raise SpecificationError(f"{name} needs a margin: the greatest loss against the baseline that still passes")
    if check.baseline is None and check.margin is not None:
        raise SpecificationError(f"{name} has a margin, but no baseline that it could be a margin to")
    for field in ("min", "max"):
        if not math.isfinite(getattr(check, field) or 0.0):
            raise SpecificationError(f"{name} has {field} {getattr(check, field)}; it must be a finite number")
    if check.margin is not None and not 0 <= check.margin < math.inf:
        raise SpecificationError(f"{name} has margin {check.margin:g}; it must be a number from 0 up, for example 0.02")
    if check.range is not None:
        _validate_range(check, check.range, name)
    if not 0 < check.error_rate < 0.5:
        raise SpecificationError(
            f"{name} has alpha {check.error_rate:g}; it must lie between 0 and 0.5, for example 0.01"
        )


def _validate_range(check: Check, limits: tuple[float, float], name: str) -> None:
    low, high = limits
    if not (low < high and math.isfinite(high - low)):
        raise SpecificationError(
            f"{name} has range [{low:g}, {high:g}]; write the least and the greatest possible score"
        )
    refuse_outside_range(check, limits)


def refuse_outside_range(check: Check, limits: tuple[float, float]) -> None:
    """Refuse a demand outside the range of scores, which no score or every score would meet.

    Args:
        check: the check.
        limits: the least and the greatest score of a document.

    Raises:
        SpecificationError: with the value and what to write; a percentage is shown as a share.
    """
    low, high = limits
    for field, least, greatest in (("min", low, high), ("max", low, high), ("margin", 0.0, high - low)):
        value = getattr(check, field)
        if value is None or least <= value <= greatest:
            continue
        is_per_cent = (least, greatest) == UNIT and 1 < value <= 100
        raise SpecificationError(
            f"{_name_of(check)} has {field} {value:g}; it must lie between {least:g} and {greatest:g}, as its scores do"
            f"{f': write {value / 100:g} for {value:g} %' if is_per_cent else ''}"
        )


def _name_of(check: Check) -> str:
    return f"the check on {f'{check.task} ' if check.task else ''}{check.metric}"


def resolve_checks(checks: Sequence[Check], keys: Mapping[str, Sequence[str]], asked: Sequence[str]) -> list[Check]:
    """Complete each check's task and metric key, before any request.

    Args:
        checks: as the user wrote them. The task may be left out if only one task of the run reports the metric, and the
            filter if the task has only one for that metric.
        keys: by task and group of the run, the metric keys that it will report.
        asked: the tasks and groups named by the user; a check without a task is looked for among these first.

    Raises:
        UnknownMetricError: no task reports the metric; the message lists the known keys.
        SpecificationError: several tasks report it and the check names none, or the check is not valid.
    """
    return [_resolve(check, keys, asked) for check in checks]


def _resolve(check: Check, keys: Mapping[str, Sequence[str]], asked: Sequence[str]) -> Check:
    validate_check(check)
    if check.task is not None and check.task not in keys:
        raise UnknownMetricError(f"the run has no task or group '{check.task}'; it has {_listed(keys)}")
    candidates = [check.task] if check.task else [name for name in asked if name in keys] or list(keys)
    found = [(name, key) for name in candidates for key in _matching(check.metric, keys[name])]
    if len(found) == 1:
        return msgspec.structs.replace(check, task=found[0][0], metric=found[0][1])
    if not found:
        known = list(dict.fromkeys(key for name in candidates for key in keys[name]))
        near = difflib.get_close_matches(check.metric, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnknownMetricError(
            f"no metric '{check.metric}' in {_listed(candidates)}: it reports {_listed(known)}{hint}"
        )
    choices = _listed([f"{name}:{key}" for name, key in found])
    raise SpecificationError(f"'{check.metric}' could mean several scores; write one of {choices}")


def _matching(metric: str, keys: Sequence[str]) -> list[str]:
    return [metric] if metric in keys else [key for key in keys if MetricKey.read(key).metric == metric]


def judge(check: Check, scores: Sequence[Score], exact: ExactScore | None = None) -> CheckResult:
    """Judge a check with a threshold by the scores of a full run.

    Args:
        check: a resolved check with a threshold.
        scores: the run's scores.
        exact: the check's score in exact arithmetic; None if it is not a mean over documents.
    """
    score = next((score for score in scores if (score.task, score.metric) == (check.task, check.metric)), None)
    verdict, reason = _verdict(check, score, exact)
    return describe(
        check,
        verdict,
        reason,
        value=score.value if score else None,
        interval=score.interval if score else None,
        n=score.n + score.failed if score else 0,
        population=score.n + score.failed if score else 0,
        failed=score.failed if score else 0,
    )


def describe(check: Check, verdict: Verdict, reason: str, **figures: object) -> CheckResult:
    """The result of a check; `figures` are more fields of :class:`CheckResult`."""
    return CheckResult(
        task=check.task or "",
        metric=check.metric,
        min=check.min,
        max=check.max,
        baseline=check.baseline,
        margin=check.margin,
        verdict=verdict,
        reason=reason,
        **figures,  # type: ignore[arg-type]
    )


def threshold_of(check: Check) -> Bound:
    """The threshold of a check with ``min`` or ``max``."""
    return Bound(check.min, higher_is_better=True) if check.min is not None else Bound(check.max or 0.0, False)


def _verdict(check: Check, score: Score | None, exact: ExactScore | None) -> tuple[Verdict, str]:
    if score is None:
        return Verdict.INVALID, "the run did not report this metric"
    if score.value is None or score.n == 0:
        return Verdict.INVALID, f"no sample was scored ({score.failed} failed)"
    bound = threshold_of(check)
    if math.isnan(score.value) or (math.isinf(score.value) and bound.met_by(score.value)):
        return Verdict.INVALID, f"the score is {score.value:g}, which is no finite number"
    if not score.failed:
        value = score.value if exact is None else exact.value
        shown = format_beside(bound.value, value)
        if bound.met_by(value):
            return Verdict.PASS, f"{shown} {'>=' if bound.higher_is_better else '<='} {bound.value:.10g}"
        return Verdict.FAIL, f"{shown} {'<' if bound.higher_is_better else '>'} {bound.value:.10g}"
    if (bounds := exact or score.bounds) is None:
        return Verdict.INVALID, unknown_range_message(score.failed)
    demand = f"{'minimum' if bound.higher_is_better else 'maximum'} {bound.value:.10g}"
    scored = f"{score.value:.4f} without {'it' if score.failed == 1 else 'them'}"
    return verdict_of_bounds(bound, (bounds.low, bounds.high), score.failed, f"{scored}; {demand}")


def format_beside(bound: float, score: float, sign: str = "") -> str:
    """A score with four decimals, or with as many as show on which side of a bound it lies: 0.59998 beside 0.6.

    Args:
        bound: the threshold.
        score: the score.
        sign: ``+`` to show the sign of a positive score.
    """
    texts = (f"{score:{sign}.{digits}f}" for digits in range(4, 18))
    sided = (text for text in texts if (float(text) < bound, float(text) > bound) == (score < bound, score > bound))
    return next(sided, f"{score:{sign}}")


def unknown_range_message(failed: int) -> str:
    """Why a run with failed samples cannot be judged if the range of scores is not known."""
    return (
        f"{counted_samples(failed)} failed, and could have scored anything; if the metric's scores have limits, state "
        "them in the check, for example range = [0, 1]"
    )


def counted_samples(count: int) -> str:
    """``1 sample``, ``2 samples``."""
    return "1 sample" if count == 1 else f"{count} samples"


def verdict_of_bounds(
    bound: Bound, ends: tuple[float, float], failed: int, context: str, sign: str = ""
) -> tuple[Verdict, str]:
    """The verdict on a score or difference that is only known to lie between two ends, because samples failed.

    Args:
        bound: the threshold.
        ends: the least and the greatest value that is possible.
        failed: how many samples failed.
        context: the end of the reason: the score of the other samples, and the demand.
        sign: ``+`` to show the sign of a positive figure.
    """
    low, high = ends
    least, most = format_beside(bound.value, low, sign), format_beside(bound.value, high, sign)
    worst_shown, best_shown = (least, most) if bound.higher_is_better else (most, least)
    worst_end, best_end = (low, high) if bound.higher_is_better else (high, low)
    them = "the failed sample" if failed == 1 else f"all {failed} failed samples"
    at_least, at_most = ("at least", "at most") if bound.higher_is_better else ("at most", "at least")
    if bound.met_by(worst_end):
        return Verdict.PASS, f"{at_least} {worst_shown}, even with {them} counted as wrong; {context}"
    if not bound.met_by(best_end):
        return Verdict.FAIL, f"{at_most} {best_shown}, even with {them} counted as right; {context}"
    failures = "1 failed sample" if failed == 1 else f"{failed} failed samples"
    return Verdict.INVALID, f"with {failures} it is anywhere from {least} to {most}; {context}"


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    shown = list(names)
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")
