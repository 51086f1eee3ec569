"""The end of a run: aggregates scores, judges checks, writes results and explains a low score."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.interruption import uninterrupted
from assay.checks.planned import judge_checks
from assay.diagnosis import Triage, explain_scores
from assay.errors import UnjudgeableError
from assay.journal.finishing import finish_journal
from assay.results.check_results import worst
from assay.results.description import marked_stopped_early, whole_document
from assay.results.document import AssayPart, ResultsDocument
from assay.results.provenance import provenance
from assay.results.writing import aggregate, new_date_id, write_document, write_results
from assay.scoring.corrections import Correction, corrections
from assay.scoring.measure import Score, group_weighting, measure, without_intervals
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.evaluation.plan import RunPlan
    from assay.evaluation.state import RunState
    from assay.results.check_results import CheckResult, Verdict
    from assay.runs.samples import SampleReader
    from assay.types import FailedSample, StoppedEarly


class Evaluation(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A finished run."""

    document: ResultsDocument
    """The results as written: lm-eval's sections and Assay's part."""
    results_file: Path
    scores: tuple[Score, ...]
    checks: tuple[CheckResult, ...]
    failures: tuple[FailedSample, ...]
    journal: Path
    corrections: tuple[Correction, ...] = ()
    """What lm-eval gets wrong about these tasks, and the right values."""
    stopped_early: StoppedEarly | None = None
    """How much was asked, if not everything: the scores are then not those of a full run."""
    triage: Triage | None = None
    """Why it scored as it did; if all checks passed, only certain faults, and None without any."""

    @cached_property
    def results(self) -> dict[str, Any]:
        """The results document as plain data, as lm-eval's ``simple_evaluate`` returns it, with Assay's ``assay``."""
        return self.document.as_json()

    @property
    def verdict(self) -> Verdict | None:
        """The worst of its checks' verdicts; None without checks."""
        return worst(self.checks) if self.checks else None

    @property
    def exit_code(self) -> int:
        """Exit code of ``assay run``: its verdict's; without checks 4 if samples failed or none has a score, else 0."""
        if self.verdict is not None:
            return self.verdict.exit_code
        return 0 if self.is_measured and not self.failures else UnjudgeableError.exit_code

    @property
    def is_measured(self) -> bool:
        """Whether any sample has a score; or all were answered, where answers alone were asked for."""
        if any(score.n for score in self.scores):
            return True
        are_answers_alone = {MetricKey.read(score.metric).metric for score in self.scores} == {"bypass"}
        return are_answers_alone and not self.failures

    def finish(self) -> None:
        """Mark the run as finished, after :func:`assay.evaluate` with ``finish=False``."""
        finish_all([self])


def finish_all(evaluations: Sequence[Evaluation]) -> None:
    """Mark several runs as finished at once: a signal cannot leave some of them unfinished."""
    with uninterrupted():
        for evaluation in evaluations:
            finish_journal(evaluation.journal, failed=len(evaluation.failures))


def conclude(plan: RunPlan, state: RunState, sample_reader: SampleReader | None = None) -> Evaluation:
    """Aggregate, judge and write.

    Args:
        plan: the run's plan.
        state: its answers and scores.
        sample_reader: reads the written samples for triage.
    """
    stamp = state.journal.date_id or new_date_id(plan.folder)
    state.journal.finalise(stamp)
    seconds = time.monotonic() - plan.started_on_clock
    if state.stopper is None:  # with early stopping, one document's prompt does not depend on another's
        for task in state.scores.values():
            task.fail_all_if_refused()
    scored = aggregate(state.scores, plan.loaded)
    scores = measure(scored.results, state.scores, plan.loaded)
    checks = judge_checks(plan.checks, scores, state.live, state.stopper)
    stopped_early = None if state.stopper is None else state.stopper.summary()
    if stopped_early is not None:
        scores = without_intervals(scores, stopped_early.complete_tasks)
        scored = marked_stopped_early(scored, stopped_early)
    failures = tuple(failed for task in state.scores.values() for failed in task.failed_samples())
    corrected = corrections(state.scores, plan.specification.model)
    logged = state.scores if plan.specification.log_samples else {}
    additions = msgspec.structs.replace(
        _additions(plan, state, seconds),
        scores=scores,
        corrections=corrected,
        checks=tuple(checks),
        failures=failures,
        early_stopping=stopped_early,
    )
    document = whole_document(
        scored,
        additions,
        plan.specification,
        plan.tokenizer,
        model_args=plan.model_args,
        task_hashes={name: task.task_hash() for name, task in logged.items()},
        started=plan.started,
        seconds=seconds,
    )
    file = write_results(plan.folder, stamp, document, logged)
    explained = logged if plan.specification.triage else {}
    places = {name: task.line_places() for name, task in explained.items()}
    state.release_samples()
    triage = explain_scores(file, checks, sample_reader, places, plan.loaded.tasks) if explained else None
    if triage is not None:
        document = msgspec.structs.replace(document, assay=msgspec.structs.replace(additions, triage=triage.recorded))
        write_document(file, document)
    return Evaluation(
        document=document,
        results_file=file,
        scores=scores,
        checks=checks,
        failures=failures,
        journal=state.journal.path,
        corrections=corrected,
        stopped_early=stopped_early,
        triage=triage,
    )


def _additions(plan: RunPlan, state: RunState, seconds: float) -> AssayPart:
    """Assay's part of the results, without scores, checks and failures."""
    totals, shares = state.totals.summary(seconds), state.shares
    origin = provenance(plan.specification, plan.preflight.first, plan.loaded, state.journal.path)
    return AssayPart(
        fallbacks={name: task.fallbacks for name, task in state.scores.items()},
        totals=msgspec.structs.replace(totals, concurrency=state.concurrency.summary()),
        provenance=msgspec.structs.replace(origin, sandbox=state.confinement),
        weighted_by_size=group_weighting(plan.loaded) or None,
        probe=state.journal.probe,
        endpoints=None if shares is None else shares.summary(state.members, plan.preflight),
        evidence=None if state.stopper is None else state.stopper.evidence(),
    )
