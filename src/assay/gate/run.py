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
from assay.gate.identity_check import IdentityOutcome, check_identity, settled_checks
from assay.gate.policy import Policy, identity_of, load_policy, specifications
from assay.results.check_results import CheckResult, Verdict, worst_verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.evaluation import Evaluation
    from assay.gate.policy import IdentityEntry
    from assay.progress import Progress
    from assay.types import ModelSpec, Specification, StoppedEarly


class ModelOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one model's checks."""

    name: str
    """The model's name in the policy."""
    model: str
    base_url: str
    """Its address; several are separated by commas."""
    checks: tuple[CheckResult, ...]
    identity: IdentityOutcome | None = None
    """What the identity check found, if the policy has one."""
    error: str | None = None
    """Why nothing could be judged; None if the model was judged."""
    results_file: str | None = None
    stopped_early: StoppedEarly | None = None
    triage: str | None = None
    """One line: the most probable cause if a check does not pass, or a certain fault if all pass."""
    other_models: dict[str, int] = {}
    """Models named in replies other than the one asked for, with their numbers of answers."""
    seconds: float = 0.0

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All that count for the gate."""
        scores = tuple(check.verdict for check in self.checks)
        if self.error is not None:
            return (*scores, Verdict.INVALID)
        return scores if self.identity is None or not self.identity.decides else (*scores, self.identity.verdict)


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
    runs = specifications(policy)
    for model_name, model in policy.models.items():
        outcome = _outcome(
            model_name, model, runs.get(model_name), identity_of(model_name, policy), progress, evaluations
        )
        outcomes.append(outcome)
    verdict = worst_verdict([verdict for outcome in outcomes for verdict in outcome.verdicts])
    report = GateReport(policy=name or "policy", verdict=verdict, models=tuple(outcomes))
    on_result(report)
    finish_all(evaluations)
    return report


def _outcome(
    name: str,
    model: ModelSpec,
    specification: Specification | None,
    entry: IdentityEntry | None,
    progress: Progress | None,
    evaluations: list[Evaluation],
) -> ModelOutcome:
    """Judge one model: its identity first, then its scores, unless identity settles them."""
    from assay.evaluation import evaluate

    started = time.monotonic()
    identity = None
    outcome = ModelOutcome(
        name=name, model=model.model, base_url=", ".join(map(without_secrets, model.base_urls)), checks=()
    )
    try:
        if entry is not None:
            identity = check_identity(entry, model, specification)
            outcome = msgspec.structs.replace(outcome, identity=identity)
        if specification is None:
            return msgspec.structs.replace(outcome, seconds=time.monotonic() - started)
        if identity is not None and identity.settled:
            settled = settled_checks(identity, specification)
            return msgspec.structs.replace(outcome, checks=settled, seconds=time.monotonic() - started)
        evaluation = evaluate(specification, progress, finish=False)
    except UnjudgeableError as error:
        checks = () if specification is None else specification.checks
        return msgspec.structs.replace(
            outcome,
            checks=tuple(describe(check, Verdict.INVALID, str(error)) for check in checks),
            error=str(error),
            seconds=time.monotonic() - started,
        )
    evaluations.append(evaluation)
    totals = evaluation.document.additions.totals
    return msgspec.structs.replace(
        outcome,
        checks=evaluation.checks,
        results_file=str(evaluation.results_file),
        stopped_early=evaluation.stopped_early,
        other_models=(totals and totals.other_models) or {},
        triage=None if evaluation.triage is None else triage_remark(evaluation.triage),
        seconds=time.monotonic() - started,
    )
