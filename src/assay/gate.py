"""Checks on scores, and their verdicts.

A verdict holds whatever the failed samples would have scored; where it could not, it is ``invalid``. Nothing passes by
being absent.
"""

from __future__ import annotations

import difflib
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from assay.errors import SpecificationError, UnknownMetricError
from assay.types import Check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.measure import Score


class Verdict(StrEnum):
    """What a check came to."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    INVALID = "invalid"
    """It could not be judged: nothing was measured, or failed samples could turn it."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command line when this is the worst verdict of a run."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INVALID: 4}[self]


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """A check, its verdict and the reason in words."""

    task: str
    metric: str
    min: float
    value: float | None
    verdict: Verdict
    reason: str


def parse_minimum(text: str) -> Check:
    """Read ``[TASK:]METRIC,FILTER=VALUE``, the argument of ``--min``.

    Raises:
        SpecificationError: the text has another form.
    """
    key, equals, value = text.rpartition("=")
    task, _, metric = key.rpartition(":")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not equals or not metric.strip() or number != number:
        raise SpecificationError(f"'{text}' is no minimum: write KEY=VALUE, for example exact_match,strict-match=0.6")
    return Check(metric=metric.strip(), min=number, task=task.strip() or None)


def resolve_checks(checks: Sequence[Check], keys: Mapping[str, Sequence[str]], asked: Sequence[str]) -> list[Check]:
    """Name each check's task and full metric key, before any request.

    Args:
        checks: as the user wrote them: the task may be left out where one task of the run reports the metric, and the
            filter where the task has only one for that metric.
        keys: metric keys that each task and group of the run will report.
        asked: the tasks and groups that were asked for by name; preferred where a check names none.

    Raises:
        UnknownMetricError: no task reports that metric, with the keys that there are.
        SpecificationError: several tasks report it and the check names none.
    """
    return [_resolve(check, keys, asked) for check in checks]


def _resolve(check: Check, keys: Mapping[str, Sequence[str]], asked: Sequence[str]) -> Check:
    if check.task is not None and check.task not in keys:
        raise UnknownMetricError(f"the run has no task or group '{check.task}'; it has {_listed(keys)}")
    candidates = [check.task] if check.task else [name for name in asked if name in keys] or list(keys)
    found = [(name, key) for name in candidates for key in _matching(check.metric, keys[name])]
    if len(found) == 1:
        return Check(task=found[0][0], metric=found[0][1], min=check.min)
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
    return [metric] if metric in keys else [key for key in keys if key.split(",", 1)[0] == metric]


def judge(check: Check, scores: Sequence[Score]) -> CheckResult:
    """Compare one resolved check with the run's scores."""
    score = next((score for score in scores if (score.task, score.metric) == (check.task, check.metric)), None)
    verdict, reason = _verdict(check.min, score)
    return CheckResult(
        task=check.task or "",
        metric=check.metric,
        min=check.min,
        value=score.value if score else None,
        verdict=verdict,
        reason=reason,
    )


def _verdict(minimum: float, score: Score | None) -> tuple[Verdict, str]:
    if score is None:
        return Verdict.INVALID, "the run did not report this metric"
    if score.value is None or score.n == 0:
        return Verdict.INVALID, f"no sample was scored ({score.failed} failed)"
    if not score.failed:
        met = score.value >= minimum
        return (
            (Verdict.PASS, f"{score.value:.4f} >= {minimum:g}")
            if met
            else (
                Verdict.FAIL,
                f"{score.value:.4f} < {minimum:g}",
            )
        )
    if score.bounds is None:
        return Verdict.INVALID, f"{score.failed} samples failed and this metric cannot be bounded without them"
    low, high = score.bounds.low, score.bounds.high
    if low >= minimum:
        return Verdict.PASS, f">= {low:.4f} even if all {score.failed} failed samples were wrong; minimum {minimum:g}"
    if high < minimum:
        return Verdict.FAIL, f"<= {high:.4f} even if all {score.failed} failed samples were right; minimum {minimum:g}"
    return (
        Verdict.INVALID,
        f"{score.failed} failed samples put it anywhere in {low:.4f} to {high:.4f}; minimum {minimum:g}",
    )


def worst(results: Sequence[CheckResult]) -> Verdict:
    """A run passes if all its checks do, and fails if one certainly does."""
    verdicts = {result.verdict for result in results}
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    return Verdict.INVALID if Verdict.INVALID in verdicts else Verdict.PASS


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    shown = list(names)
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")
