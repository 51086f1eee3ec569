"""Runs a policy: every model against its checks, to one verdict."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from assay._util.event_loops import refuse_inside_event_loop
from assay.checks.verdicts import describe
from assay.client.urls import without_secrets
from assay.diagnosis.remark import triage_remark
from assay.errors import UnjudgeableError
from assay.gate.policy import Policy, load_policy, specifications
from assay.results.check_results import CheckResult, Verdict, worst

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.evaluation import Evaluation
    from assay.progress import Progress
    from assay.types import Specification, StoppedEarly


class ModelOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one model's checks."""

    name: str
    """The model's name in the policy."""
    model: str
    base_url: str
    """Its address; several are separated by commas."""
    checks: tuple[CheckResult, ...]
    error: str | None = None
    """Why nothing could be judged; None if the model was judged."""
    results_file: str | None = None
    stopped_early: StoppedEarly | None = None
    triage: str | None = None
    """One line: the most probable cause if a check does not pass, or a certain fault if all pass."""
    other_models: dict[str, int] = {}
    """Models named in replies other than the one asked for, with their numbers of answers."""
    seconds: float = 0.0


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a gate."""

    policy: str
    """The policy's file."""
    verdict: Verdict
    models: tuple[ModelOutcome, ...]

    @property
    def checks(self) -> list[tuple[ModelOutcome, CheckResult]]:
        """All checks, each with its model."""
        return [(model, check) for model in self.models for check in model.checks]


def run_gate(
    policy: Policy | str | Path,
    progress: Progress | None = None,
    *,
    name: str | None = None,
    on_result: Callable[[GateReport], None] = lambda _: None,
) -> GateReport:
    """Evaluate every model of a policy, one after another.

    If a model's server is gone or refuses everything, or its baseline does not match, its checks are ``invalid``; the
    other models are still judged.

    Args:
        policy: a policy, or its TOML file.
        progress: is told what happens in each run, one after another; :func:`assay.show_progress` shows it.
        name: name of the policy in reports; None: its file.
        on_result: called with the report before the runs are marked as finished. If the process ends earlier, the same
            call asks no model anything again.

    Raises:
        UsageError: a model cannot be evaluated as the policy asks.
        RunInterrupted: stopped by Ctrl-C or SIGTERM; the same call continues where it stopped.
    """
    refuse_inside_event_loop("run_gate", "await asyncio.to_thread(run_gate, …)")
    from assay.evaluation.finish import finish_all

    if not isinstance(policy, Policy):
        policy, name = load_policy(policy), name or str(policy)
    outcomes: list[ModelOutcome] = []
    evaluations: list[Evaluation] = []
    for model_name, specification in specifications(policy).items():
        outcomes.append(_outcome(model_name, specification, progress, evaluations))
    results = [check for outcome in outcomes for check in outcome.checks]
    report = GateReport(policy=name or "policy", verdict=worst(results), models=tuple(outcomes))
    on_result(report)
    finish_all(evaluations)
    return report


def _outcome(
    name: str, specification: Specification, progress: Progress | None, evaluations: list[Evaluation]
) -> ModelOutcome:
    """Evaluate one model, and add its run to `evaluations` unless it could not be judged."""
    from assay.evaluation import evaluate

    started = time.monotonic()
    model = specification.model
    try:
        evaluation = evaluate(specification, progress, finish=False)
    except UnjudgeableError as error:
        return ModelOutcome(
            name=name,
            model=model.model,
            base_url=", ".join(map(without_secrets, model.base_urls)),
            checks=tuple(describe(check, Verdict.INVALID, str(error)) for check in specification.checks),
            error=str(error),
            seconds=time.monotonic() - started,
        )
    evaluations.append(evaluation)
    totals = evaluation.document.additions.totals
    return ModelOutcome(
        name=name,
        model=model.model,
        base_url=", ".join(map(without_secrets, model.base_urls)),
        checks=evaluation.checks,
        results_file=str(evaluation.results_file),
        stopped_early=evaluation.stopped_early,
        other_models=(totals and totals.other_models) or {},
        triage=None if evaluation.triage is None else triage_remark(evaluation.triage),
        seconds=time.monotonic() - started,
    )
