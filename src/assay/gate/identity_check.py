"""A gate's first check: is it still the model that was recorded? It needs some fifty one-token requests.

Where no check on scores stands beside it, it decides by itself. Otherwise scores decide, unless the policy lets
``same`` settle those against a baseline.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.checks.verdicts import describe
from assay.errors import BaselineMismatchError
from assay.identity import Identity, IdentityOptions, IdentityResult, check_fingerprint, read_fingerprint
from assay.results.check_results import CheckResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.checks.planned import PlannedCheck
    from assay.gate.policy import IdentityEntry
    from assay.tasks.library import LoadedTasks
    from assay.types import ModelSpec, Specification

_VERDICTS = {
    Identity.SAME: Verdict.PASS,
    Identity.DIFFERENT: Verdict.FAIL,
    Identity.INCONCLUSIVE: Verdict.INCONCLUSIVE,
}


class IdentityOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the identity check of one model found."""

    record: str
    """The fingerprint's file."""
    result: IdentityResult
    decides: bool
    """No check on scores stands beside it."""
    settled: bool = False
    """``same`` stands for the checks on scores; nothing was asked for them."""
    not_settled: str | None = None
    """Why ``same`` did not settle them, though the policy allows it."""

    @property
    def verdict(self) -> Verdict:
        """As a gate's verdict."""
        return _VERDICTS[self.result.verdict]

    @property
    def words(self) -> str:
        """What it found, and what follows for the scores."""
        if self.decides or self.settled:
            follows = ""
        elif self.not_settled is not None:
            follows = f"; the scores decide: {self.not_settled}"
        else:
            follows = "; the scores decide"
        return f"{self.result.verdict} as {self.record}, {self.result.reason}{follows}"


def check_identity(entry: IdentityEntry, model: ModelSpec, specification: Specification | None) -> IdentityOutcome:
    """Ask a model's server until it is decided whether it is still the recorded model.

    Args:
        entry: what the policy says of the check.
        model: the server and model.
        specification: the model's checks on scores; None if it has none.

    Raises:
        UsageError: a record cannot be read, a value makes no sense, or the server gives no log-probabilities.
        UnjudgeableError: the server is gone, or answers hardly anything.
    """
    record = read_fingerprint(Path(entry.record))
    options = IdentityOptions(
        alpha=entry.alpha,
        beta=entry.alpha,
        size=entry.size,
        tolerate=entry.tolerate,
        requests=entry.requests,
        seed=secrets.randbelow(2**31),
    )
    asked = msgspec.structs.replace(model, endpoint=record.endpoint, seed=record.seed)
    result = check_fingerprint(record, asked, options, [read_fingerprint(Path(file)) for file in entry.noise])
    outcome = IdentityOutcome(record=entry.record, result=result, decides=specification is None)
    if specification is None or not entry.settles or result.verdict is not Identity.SAME:
        return outcome
    obstacle = _obstacle(specification, record.model)
    return msgspec.structs.replace(outcome, settled=obstacle is None, not_settled=obstacle)


def settled_checks(outcome: IdentityOutcome, specification: Specification) -> tuple[CheckResult, ...]:
    """The checks on scores that ``same`` settles: the baseline's scores are taken to be this server's, too."""
    reason = f"settled without questions: the model is {outcome.words}; assumes that the baseline is of that record"
    return tuple(describe(check, Verdict.PASS, reason) for check in specification.checks)


def _obstacle(specification: Specification, recorded: str) -> str | None:
    """Why the baselines cannot stand for the scores: each must fit what would be asked now, and be of the same model.

    Raises:
        UsageError: a check, its task or its baseline cannot be used.
    """
    from assay.checks.planned import plan_checks, refuse_other_requests
    from assay.specification import validate
    from assay.tasks.library import load_tasks
    from assay.tasks.lm_eval_lock import lm_eval_lock
    from assay.tasks.model_args import model_args

    specification = validate(specification)
    with lm_eval_lock("run_gate"):
        loaded = load_tasks(specification.tasks, specification.options, model_args(specification.model))
        try:
            planned = plan_checks(specification, loaded)
            refuse_other_requests(planned, loaded, specification.model)
        except BaselineMismatchError as error:
            return str(error)
        changed = _task_with_other_prompts(planned, loaded, specification)
    if changed is not None:
        return f"documents or prompts of {changed} differ from the baseline's"
    for plan in planned:
        if plan.check.allow_mismatch:
            return f"the check on {plan.check.task} allows a baseline that differs"
        if plan.baseline is not None and plan.baseline.model != recorded:
            return f"the baseline {plan.check.baseline} is of {plan.baseline.model}, and the record of {recorded}"
    return None


def _task_with_other_prompts(
    planned: Sequence[PlannedCheck], loaded: LoadedTasks, specification: Specification
) -> str | None:
    """The first task of which a document or prompt is not as in a baseline; None if all are."""
    from assay.evaluation.streams import streams
    from assay.runs.record import document_hash, prompt_hash
    from assay.scoring.sample_lines import SampleLines
    from assay.tasks.loglikelihood import needs_loglikelihood
    from assay.tasks.requests import RequestWriter
    from assay.tasks.tokenizer import tokenizer_of
    from assay.types import LogprobSource

    recorded = [
        (name, dict(zip(task.doc_ids, zip(task.documents, task.prompts, strict=True), strict=True)))
        for plan in planned
        if plan.baseline is not None
        for name in plan.scope.tasks
        for task in [plan.baseline.tasks[name]]
    ]
    source = LogprobSource.ECHO if needs_loglikelihood(loaded.tasks) else None
    writer = RequestWriter(specification.model, tokenizer_of(specification.model), source)
    for stream in streams(loaded.tasks, writer, specification.options):
        for sample in stream.samples:
            if not sample.instances:
                return sample.task
            hashes = SampleLines.of(sample, loaded.tasks[sample.task], sample.doc).hashes.hex()
            identity = document_hash(hashes[:64], hashes[128:]), prompt_hash(hashes[64:128])
            if any(name == sample.task and known.get(sample.doc_id) != identity for name, known in recorded):
                return sample.task
    return None
