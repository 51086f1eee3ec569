"""What changes during a run: journal, scores, totals, and the order of requests."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from assay.checks.early_stopping import EarlyStopper, seed_of
from assay.checks.live_scores import LiveScores
from assay.checks.planned import early_stopper_for, refuse_own_results
from assay.client.auto_concurrency import concurrency_of
from assay.evaluation.endpoint_shares import EndpointShares
from assay.evaluation.totals import RunTotals
from assay.inprocess.answering import local_concurrency
from assay.journal import Journal
from assay.scoring.deadline import SCORING_SECONDS, Deadline
from assay.scoring.task_scores import TaskScores, lines_spool, receive_all
from assay.specification import fingerprints, recorded
from assay.tasks.code_eval import verdicts_of
from assay.tasks.crash_record import CrashRecord
from assay.types import CompleteSample

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from assay.client.concurrency import Concurrency
    from assay.client.pool_member import Member
    from assay.evaluation.plan import RunPlan
    from assay.evaluation.snapshot import RunSnapshot
    from assay.sandbox.program import Confinement
    from assay.scheduling.schedule import LongestFirst
    from assay.types import Response, Sample


@dataclass
class RunState:
    """What changes while answers arrive."""

    journal: Journal
    scores: dict[str, TaskScores]
    live: LiveScores
    totals: RunTotals
    concurrency: Concurrency
    schedule: LongestFirst | None = None
    """Decides which task's sample is asked next; None if an early stopper does."""
    shares: EndpointShares | None = None
    """None if there is a single endpoint."""
    members: Sequence[Member] = ()
    """The endpoints, if there are several."""
    confinement: Confinement | None = None
    """The sandbox of programs that the model wrote; None if no task runs any."""
    snapshot: RunSnapshot | None = None
    """What progress displays read."""
    stopper: EarlyStopper | None = None
    """Decides when to stop; None if every document is asked."""

    def release_samples(self) -> None:
        """Free the memory of the samples once they are written: triage needs as much again."""
        if self.snapshot is not None:
            self.snapshot.freeze()
        for task in self.scores.values():
            task.release_samples()

    def prepare(self, sample: Sample, responses: Sequence[Response]) -> Coroutine[Any, Any, None] | None:
        """What must be awaited before a sample is received; None if nothing."""
        return self.scores[sample.task].prepare(sample, responses)

    def receive(self, complete: Sequence[CompleteSample]) -> None:
        """Take samples with their answers, in order of arrival."""
        if self.schedule is not None:
            for sample, responses in complete:
                self.schedule.learn(sample, responses)
        if self.stopper is None:
            self.score(complete)
        else:
            for sample, responses in complete:
                self.stopper.receive(sample, responses)

    def score(self, complete: Sequence[CompleteSample]) -> None:
        """Score samples and count their responses."""
        for _, responses in complete:
            self.totals.add(responses)
            if self.shares is not None:
                self.shares.add(responses)
        receive_all(self.scores, complete)


@contextmanager
def open_state(plan: RunPlan) -> Iterator[RunState]:
    """Open the journal and get ready to score.

    Raises:
        JournalError: another process is writing the run's journal, or the journal cannot be read.
        OutputError: the journal cannot be written.
        BaselineMismatchError: a check's baseline is this run.
    """
    first, *others = fingerprints(plan.specification)
    journal = Journal.open(
        plan.folder.absolute() / "journal",  # a task's code may change the working directory meanwhile
        fingerprint=first,
        replicas=tuple(others),
        specification=msgspec.to_builtins(recorded(plan.specification)),
        fresh=plan.specification.fresh,
        newest=plan.specification.retry_failed,
    )
    tasks = plan.loaded.tasks
    crashes = CrashRecord(journal.path.with_suffix(".scoring"), forget=plan.specification.retry_failed)
    with (
        journal,
        crashes.open(),
        lines_spool(plan.folder) as spool,
        verdicts_of(tasks, crashes) as (verdicts, confinement),
    ):
        refuse_own_results(plan.checks, journal.path.name)
        deadline = Deadline(SCORING_SECONDS)
        scores = {
            name: TaskScores(name, task, spool, deadline, verdicts.get(name), crashes) for name, task in tasks.items()
        }
        model = plan.specification.model
        stops_early = plan.specification.early_stopping is not None
        concurrency = (
            concurrency_of(model) if plan.engine is None else local_concurrency(model, stops_early=stops_early)
        )
        live = LiveScores(scores, plan.specification.model)
        totals = RunTotals(plan.specification.model.thinking_budget)
        state = RunState(journal, scores, live, totals, concurrency, confinement=confinement)
        if plan.specification.model.replicas:
            state.shares = EndpointShares()
        state.stopper = early_stopper_for(
            plan.checks,
            plan.documents,
            plan.specification,
            seed=seed_of(journal.path.name),
            concurrency=concurrency,
            score=lambda sample, responses: state.score([CompleteSample(sample, responses)]),
            live=state.live,
        )
        with deadline.watching(), _frozen_garbage_collection():
            yield state


@contextmanager
def _frozen_garbage_collection() -> Iterator[None]:
    """Exclude libraries and loaded tasks from garbage collection: they live to the end."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
