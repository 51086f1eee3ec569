"""A run's checks: resolved and validated before any request, judged after the last answer."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from assay.checks.against_baseline import judge_against_baseline, mismatch_message
from assay.checks.early_stopping import EarlyStopper
from assay.checks.exact import ExactScore, Stratum, exact_score
from assay.checks.live_scores import LiveScores, task_settings
from assay.checks.scope import Scope, doubts_of, scope_of
from assay.checks.sequential import SequentialCheck, out_of_range_message, plan_of
from assay.checks.verdicts import describe, judge, resolve_checks
from assay.errors import BaselineMismatchError, SpecificationError
from assay.results.check_results import CheckResult, Verdict
from assay.runs.files import read_run, whole_run_hint
from assay.runs.pairing import partial_message, settings_changes
from assay.tasks.metrics import metric_keys_by_name
from assay.tasks.selection import count_chosen, describe_part, documents_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from assay.client.concurrency import Concurrency
    from assay.runs.record import RecordedRun
    from assay.scoring.measure import Score
    from assay.tasks.library import LoadedTasks
    from assay.types import Check, ModelSpec, Response, Sample, Specification, TaskOptions


_NAMED = 3
"""Subtasks named in a reason."""


@dataclass(frozen=True)
class PlannedCheck:
    """A resolved check with its scope and baseline."""

    check: Check
    scope: Scope
    baseline: RecordedRun | None
    part: str | None = None
    """Which part of the documents ``limit`` or ``samples`` leaves, for messages; None if all."""

    @property
    def doubts(self) -> list[str]:
        """Warnings about what the user probably did not mean."""
        return [f"{self.check.task} {self.check.metric}: {words}" for words in doubts_of(self.check, self.scope)]


def plan_checks(specification: Specification, loaded: LoadedTasks) -> tuple[PlannedCheck, ...]:
    """Resolve all checks of a run, and refuse those that could never be judged.

    Raises:
        UnknownMetricError: a check's task or metric does not exist.
        SpecificationError: a check makes no sense, or a run that may stop early has a task without a check.
        FileFormatError: a baseline cannot be read.
        BaselineMismatchError: a baseline has another task version or other settings.
    """
    resolved = resolve_checks(specification.checks, metric_keys_by_name(loaded), specification.tasks)
    read_baseline = functools.cache(read_run)
    planned = []
    for check in resolved:
        scope = scope_of(check, loaded)
        baseline = None
        if check.baseline is not None:
            baseline = read_baseline(check.baseline)
            refuse_unusable_baseline(check, scope, baseline, loaded, specification.options)
        part = describe_part([loaded.tasks[name] for name in scope.tasks], specification.options)
        planned.append(PlannedCheck(check, scope, baseline, part))
    if specification.early_stopping is not None:
        refuse_unchecked_tasks([plan.scope for plan in planned], loaded)
        for plan in [plan for plan in planned if plan.scope.may_stop_early]:
            plan_of(plan.check, plan.scope, population=1, weights={})
    return tuple(planned)


def refuse_own_results(planned: Sequence[PlannedCheck], journal: str) -> None:
    """Refuse a baseline that is an earlier state of this run: its answers would be compared with themselves.

    Args:
        planned: the run's checks.
        journal: name of the run's journal.

    Raises:
        BaselineMismatchError: with what to do.
    """
    for plan in planned:
        if plan.baseline is not None and plan.baseline.journal == journal:
            raise BaselineMismatchError(
                f"the baseline {plan.check.baseline} is this run itself, which is being resumed: its answers would be "
                "compared with themselves; name another baseline, or start anew with --fresh"
            )


def judge_checks(
    planned: Sequence[PlannedCheck], scores: Sequence[Score], live: LiveScores, stopper: EarlyStopper | None
) -> tuple[CheckResult, ...]:
    """The verdicts of a run that has ended.

    Args:
        planned: the run's checks.
        scores: the run's scores.
        live: the documents' scores.
        stopper: decided the checks while answers arrived; None if the run could not stop early.
    """
    if stopper is None:
        results = [_judge_fully(plan, scores, live) for plan in planned]
    else:
        results = [
            _note_full_run(_judge_fully(plan, scores, live), plan.scope, followed)
            if stopper.is_complete(followed)
            else followed.result()
            for plan, followed in zip(planned, stopper.checks, strict=True)
        ]
    return tuple(
        _note_doubts(_note_missing_subtasks(_note_part(result, plan.part), plan.scope), plan)
        for result, plan in zip(results, planned, strict=True)
    )


def early_stopper_for(
    planned: Sequence[PlannedCheck],
    documents: Mapping[str, Sequence[int]],
    specification: Specification,
    *,
    seed: int,
    concurrency: Concurrency,
    score: Callable[[Sample, Sequence[Response]], None],
    live: LiveScores,
) -> EarlyStopper | None:
    """The early stopper of a run; None if the run asks every document.

    Args:
        planned: the checks.
        documents: by task, the numbers of its documents.
        specification: the run.
        seed: of the random order, unless the specification sets one.
        concurrency: how many requests are in flight at once.
        score: scores a sample.
        live: the documents' scores.

    Raises:
        SpecificationError: a threshold is out of range.
    """
    stopping = specification.early_stopping
    if stopping is None:
        return None
    sizes = {task: len(numbers) for task, numbers in documents.items()}
    followed = [SequentialCheck(plan.check, plan.scope, sizes, plan.baseline) for plan in planned]
    chosen = seed if stopping.order_seed is None else stopping.order_seed
    return EarlyStopper(
        followed,
        documents,
        stopping,
        seed=chosen,
        concurrency=concurrency,
        score=score,
        lookup=live,
    )


def _note_missing_subtasks(result: CheckResult, scope: Scope) -> CheckResult:
    """Add to the reason which subtasks are not part of a group's score."""
    if not scope.not_reporting:
        return result
    more = f" and {len(scope.not_reporting) - _NAMED} more" if len(scope.not_reporting) > _NAMED else ""
    named = f"{', '.join(scope.not_reporting[:_NAMED])}{more}"
    subtasks = len(scope.not_reporting) + len(scope.tasks)
    words = f"without {named} of its {subtasks} subtasks, which do not report {result.metric}"
    return msgspec.structs.replace(result, reason=f"{result.reason}; {words}")


def _note_full_run(result: CheckResult, scope: Scope, followed: SequentialCheck) -> CheckResult:
    """Add to the reason why a check that might have stopped early needed all documents."""
    if not scope.may_stop_early or not followed.not_early_because or followed.fault:
        return result
    reason = f"{result.reason}; could not stop early: {followed.not_early_because}"
    return msgspec.structs.replace(result, reason=reason)


def _note_doubts(result: CheckResult, plan: PlannedCheck) -> CheckResult:
    """Add the warnings about a check to its reason: the reader of a report may not have seen the run's output."""
    reason = "; ".join([result.reason, *doubts_of(plan.check, plan.scope)])
    return msgspec.structs.replace(result, reason=reason)


def _note_part(result: CheckResult, part: str | None) -> CheckResult:
    """Add to the reason that the verdict is about a part of the benchmark."""
    if part is None:
        return result
    reason = f"{result.reason}; {part} only, which says nothing about the rest"
    return msgspec.structs.replace(result, reason=reason)


def _judge_fully(plan: PlannedCheck, scores: Sequence[Score], live: LiveScores) -> CheckResult:
    if outside := _contradiction_of_range(plan, live):
        return describe(plan.check, Verdict.INVALID, outside)
    if plan.baseline is None:
        return judge(plan.check, scores, _exact_score(plan.scope, plan.check.metric, live))
    records = {name: live.record(name, (plan.check.metric,)) for name in plan.scope.tasks}
    return judge_against_baseline(plan.check, plan.scope, plan.baseline, records)


def _exact_score(scope: Scope, metric: str, live: LiveScores) -> ExactScore | None:
    if not scope.is_mean:
        return None
    strata = [Stratum(live.exact_values(name, metric), live.failed(name)) for name in scope.tasks]
    return exact_score(strata, scope.range, by_size=scope.weighted_by_size)


def _contradiction_of_range(plan: PlannedCheck, live: LiveScores) -> str | None:
    """Which score lies outside the range that the check states, as a message; None if none does."""
    if plan.check.range is None:
        return None
    for name in plan.scope.tasks:
        known = live.values(name, plan.check.metric)
        before = {} if plan.baseline is None else plan.baseline.scores(name, plan.check.metric)
        for doc_id in sorted({*known, *before}):
            if words := out_of_range_message([known.get(doc_id), before.get(doc_id)], name, doc_id, plan.scope):
                return words
    return None


def refuse_unusable_baseline(
    check: Check, scope: Scope, baseline: RecordedRun, loaded: LoadedTasks, options: TaskOptions
) -> None:
    """Refuse a baseline with which a check can never be judged.

    Raises:
        BaselineMismatchError: it was stopped early, lacks the metric, has another task version or other settings, or
            has documents or subtasks that no longer exist.
    """
    if baseline.stopped_early:
        raise BaselineMismatchError(
            f"{baseline.source} was stopped early and is no baseline: it lacks most documents"
            f"{whole_run_hint(baseline.source)}"
        )
    for name in scope.tasks:
        before = baseline.tasks.get(name)
        if before is None or not before.scores.get(check.metric):
            had = ", ".join([*before.scores] if before else [*baseline.tasks]) or "nothing"
            if before is not None and before.doc_ids and not before.scores:
                had = (
                    "none whose every document has a number as its score, and whose value in the results is the mean "
                    "of these"
                )
            raise BaselineMismatchError(
                f"the baseline {check.baseline} has no documents of {name} scored by {check.metric}; it has {had}"
            )
    if not check.allow_mismatch and (changes := [*_changes(check, scope, baseline, loaded, options)]):
        raise BaselineMismatchError(mismatch_message(changes))


def _changes(
    check: Check, scope: Scope, baseline: RecordedRun, loaded: LoadedTasks, options: TaskOptions
) -> Iterator[str]:
    """What differs from the baseline, as far as is known before the first request."""
    group = baseline.groups.get(check.task or "")
    if group is not None and (gone := [name for name in group.tasks if name not in scope.tasks]):
        yield f"{check.task}: its subtasks {', '.join(gone)} are gone"
    for name in scope.tasks:
        before, task = baseline.tasks[name], loaded.tasks[name]
        yield from (f"{name}: {change}" for change in settings_changes(before.settings, task_settings(task)))
        numbers = [*before.doc_ids, *before.failed]
        expected, asked = count_chosen(name, numbers, options), len(documents_of(name, task, options))
        if asked > len(numbers):
            added = f"data: {asked - len(numbers)} of {asked} documents are not in the baseline"
            yield f"{name}: {added if before.part is None else partial_message(before.part)}"
        if asked < expected:
            yield f"{name}: data: {expected - asked} of the baseline's {len(numbers)} documents are gone"


def refuse_other_requests(plans: Iterable[PlannedCheck], loaded: LoadedTasks, model: ModelSpec) -> None:
    """Refuse baselines whose requests were changed in another way, once it is known how the server wants to be asked.

    Raises:
        BaselineMismatchError: a setting differs.
    """
    for plan in plans:
        if plan.baseline is None or plan.check.allow_mismatch:
            continue
        if changes := request_changes(plan.scope, plan.baseline, loaded, model):
            raise BaselineMismatchError(mismatch_message(changes))


def request_changes(scope: Scope, baseline: RecordedRun, loaded: LoadedTasks, model: ModelSpec) -> list[str]:
    """What differs from the baseline in the tasks' settings and in what is done to their requests."""
    return [
        f"{name}: {change}"
        for name in scope.tasks
        for change in settings_changes(baseline.tasks[name].settings, task_settings(loaded.tasks[name], model))
    ]


def refuse_unchecked_tasks(scopes: Iterable[Scope], loaded: LoadedTasks) -> None:
    """Refuse a run that may stop early if one of its tasks has no check.

    Raises:
        SpecificationError: with the tasks' names.
    """
    checked = {task for scope in scopes for task in scope.tasks}
    if unchecked := [name for name in loaded.tasks if name not in checked]:
        raise SpecificationError(
            f"no check looks at {', '.join(unchecked[:5])}, so nothing says when to stop asking: "
            "add a check, leave the task out, or run it in full (in a policy: stop_early = false)"
        )
