"""Evaluate a served model: specification in, results files and scores out.

Scores and verdicts are functions of specification and journal, so an interrupted run, started again, ends as if it had
never stopped and asks for no answer twice.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from assay.checks import PlannedCheck, follow_checks, judge_checks, plan_checks
from assay.corrections import Correction, corrections
from assay.deadline import Deadline
from assay.early import Follower, StoppedEarly, seed_of
from assay.endpoint_shares import EndpointShares
from assay.engine import ask_all
from assay.errors import OutputError, RunInterrupted, UsageError
from assay.journal import Journal
from assay.measure import Score, measure, without_intervals
from assay.models.api_key import read_api_key
from assay.models.auto_concurrency import concurrency_of
from assay.models.echo_probe import common_source, find_logprob_source
from assay.models.openai import OpenAIModel
from assay.models.urls import server_root
from assay.progress import Progress
from assay.provenance import provenance
from assay.results import (
    aggregate,
    date_id,
    describe_prompting,
    describe_run,
    describe_tokenizer,
    mark_stopped_early,
    model_folder,
    refuse_unwritable,
    write_document,
    write_results,
)
from assay.schedule import LongestFirst
from assay.score_book import LiveScores
from assay.so_far import RunSoFar
from assay.specification import fingerprints, validate
from assay.spool import Spool
from assay.tasks.any_order import SamplesInAnyOrder
from assay.tasks.code_eval import verdicts_of
from assay.tasks.library import LoadedTasks, load_tasks
from assay.tasks.loglikelihood import LoglikelihoodBodies, needs_loglikelihood, refuse_unscorable
from assay.tasks.model_args import model_args
from assay.tasks.requests import RequestWriter, Sample
from assay.tasks.scoring import FailedSample, TaskScores
from assay.tasks.scoring_needs import require_scoring_needs
from assay.tasks.selection import chosen_documents
from assay.tasks.settings_check import refuse_odd_settings
from assay.tasks.streams import streams
from assay.tasks.tokenizer import Tokenizer
from assay.totals import RunTotals
from assay.triage import Triage, explain_scores, needs_explanation

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from pathlib import Path
    from types import FrameType

    from assay.gate import CheckResult
    from assay.models.concurrency import Concurrency
    from assay.models.meeting import Meeting
    from assay.models.pool_member import Member
    from assay.sandbox.program import Confinement
    from assay.types import ModelSpec, Response, Specification


_SCORING_SECONDS = 30.0
"""Longest that one sample may take to score."""
_PROBE_SECONDS = 10.0
"""Longest that a run waits for what its server is seen to do."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run."""

    results: dict[str, Any]
    """The results document as written: lm-eval's sections, and Assay's under ``assay``."""
    results_file: Path
    scores: tuple[Score, ...]
    checks: tuple[CheckResult, ...]
    failures: tuple[FailedSample, ...]
    journal: Path
    corrections: tuple[Correction, ...] = ()
    """What lm-eval gets wrong about these tasks, and the right values."""
    stopped_early: StoppedEarly | None = None
    """How much was asked, where that is not everything: the scores are then no full run's."""
    triage: Triage | None = None
    """Why it scored as it did; None where all checks passed, or no samples files were written."""


def evaluate(specification: Specification, progress: Progress | None = None) -> Evaluation:
    """Run `specification` and write its results.

    Args:
        specification: what to ask of which model.
        progress: is told what happens.

    Raises:
        UsageError: it cannot be done as asked (a bad value, an unknown task or metric, missing data, …).
        UnjudgeableError: the server cannot be reached, or refuses everything.
        RunInterrupted: stopped by Ctrl-C or SIGTERM; the same call goes on where it stopped.
    """
    _refuse_inside_event_loop()
    specification = validate(specification)
    with _interruptible(_folder(specification)), asyncio.Runner() as runner:
        meeting = runner.run(_meet_servers(specification.model))
        plan = _make_plan(specification, meeting)
        writer = runner.run(_request_writer(plan))
        with _open_work(plan) as work:
            runner.run(_answer(plan, writer, work, progress or Progress()))
            return _conclude(plan, work)


def _refuse_inside_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "evaluate() cannot be called where an event loop runs (a notebook, an async function): there, write "
        "`await evaluate_async(specification)`"
    )


async def evaluate_async(specification: Specification, progress: Progress | None = None) -> Evaluation:
    """:func:`evaluate` for callers with an event loop of their own; cancelling it leaves a resumable run."""
    specification = validate(specification)
    meeting = await _meet_servers(specification.model)
    plan = _make_plan(specification, meeting)
    writer = await _request_writer(plan)
    with _open_work(plan) as work:
        await _answer(plan, writer, work, progress or Progress())
        return _conclude(plan, work)


@dataclass(frozen=True)
class _Plan:
    """A specification with its tasks loaded, and everything refused that could never be scored or judged."""

    specification: Specification
    meeting: Meeting
    started: float
    folder: Path
    loaded: LoadedTasks
    tokenizer: Tokenizer | None
    checks: Sequence[PlannedCheck]
    documents: dict[str, Sequence[int]]
    """By task, the numbers of the documents to ask."""

    @property
    def expected(self) -> dict[str, int]:
        """Samples by task."""
        return {name: len(numbers) for name, numbers in self.documents.items()}


@dataclass
class _Work:
    """What fills up while answers arrive."""

    journal: Journal
    scores: dict[str, TaskScores]
    live: LiveScores
    totals: RunTotals
    concurrency: Concurrency
    schedule: LongestFirst | None = None
    """Decides whose sample leaves next; None where a follower does."""
    shares: EndpointShares | None = None
    """Where there are several endpoints."""
    members: Sequence[Member] = ()
    """The endpoints, where there are several."""
    confinement: Confinement | None = None
    """What keeps the model's programs in; None where no task runs any."""
    follower: Follower | None = None
    """Decides when to stop; None where every document is asked."""

    def prepare(self, sample: Sample, responses: Sequence[Response]) -> Coroutine[Any, Any, None] | None:
        """What a sample must wait for before it is received; None for nothing."""
        return self.scores[sample.task].prepare(sample, responses)

    def receive(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Take a sample's answers as they arrive."""
        if self.schedule is not None:
            self.schedule.learn(sample, responses)
        if self.follower is None:
            self.score(sample, responses)
        else:
            self.follower.receive(sample, responses)

    def score(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Score a sample for good."""
        self.totals.add(responses)
        if self.shares is not None:
            self.shares.add(responses)
        self.scores[sample.task].receive(sample, responses)


async def _meet_servers(spec: ModelSpec) -> Meeting:
    """Make sure that a server is there and serves the model, before anything costs time."""
    async with _open_model(spec) as model:
        return await model.meet()


def _make_plan(specification: Specification, meeting: Meeting) -> _Plan:
    started = time.time()
    model, options = specification.model, specification.options
    folder = _folder(specification)
    _ensure_writable(folder)
    loaded = load_tasks(specification.tasks, options, model_args(model))
    refuse_unscorable(loaded.tasks, model)
    refuse_unwritable(loaded.tasks)
    refuse_odd_settings(loaded.tasks)
    require_scoring_needs(loaded.tasks)
    tokenizer = None if model.tokenizer is None else Tokenizer(model.tokenizer)
    if tokenizer is not None and options.apply_chat_template:
        _ = tokenizer.chat_template  # refused now, where it has none
    return _Plan(
        specification=specification,
        meeting=meeting,
        started=started,
        folder=folder,
        loaded=loaded,
        tokenizer=tokenizer,
        checks=plan_checks(specification, loaded),
        documents=chosen_documents(loaded.tasks, options),
    )


async def _request_writer(plan: _Plan) -> RequestWriter:
    """What writes the run's requests; where log-likelihoods are needed, in the way in which the server gives them."""
    spec, tokenizer = plan.specification.model, plan.tokenizer
    if not needs_loglikelihood(plan.loaded.tasks):
        return RequestWriter(spec, tokenizer)
    sources = {}
    for base_url in [url for url in spec.base_urls if server_root(url) in plan.meeting.servers]:
        async with _open_model(msgspec.structs.replace(spec, base_url=base_url, replicas=())) as model:
            sources[base_url] = await find_logprob_source(
                model, lambda source: LoglikelihoodBodies(spec, tokenizer, source).trial()
            )
    return RequestWriter(spec, tokenizer, common_source(sources))


@contextmanager
def _open_work(plan: _Plan) -> Iterator[_Work]:
    first, *others = fingerprints(plan.specification)
    journal = Journal.open(
        plan.folder / "journal",
        fingerprint=first,
        replicas=tuple(others),
        specification=msgspec.to_builtins(plan.specification),
        fresh=plan.specification.fresh,
        newest=plan.specification.retry_failed,
    )
    tasks = plan.loaded.tasks
    with journal, Spool(plan.folder) as spool, verdicts_of(tasks) as (verdicts, confinement):
        deadline = Deadline(_SCORING_SECONDS)
        scores = {name: TaskScores(name, task, spool, deadline, verdicts.get(name)) for name, task in tasks.items()}
        concurrency = concurrency_of(plan.specification.model)
        work = _Work(journal, scores, LiveScores(scores), RunTotals(), concurrency, confinement=confinement)
        if plan.specification.model.replicas:
            work.shares = EndpointShares()
        work.follower = follow_checks(
            plan.checks,
            plan.documents,
            plan.specification,
            seed=seed_of(journal.path.name),
            concurrency=concurrency,
            score=work.score,
            live=work.live,
        )
        with deadline.watching(), _loaded_objects_left_alone():
            yield work


@contextmanager
def _loaded_objects_left_alone() -> Iterator[None]:
    """Spare the garbage collector all that is there by now: libraries and tasks, which live to the end."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _answer(plan: _Plan, writer: RequestWriter, work: _Work, progress: Progress) -> None:
    """Ask for what the journal does not hold yet, and score each sample as its last answer arrives."""
    spec = plan.specification.model
    progress.loaded(plan.expected, work.journal.answers, work.journal.path)
    progress.watching(RunSoFar(work.scores, plan.checks, work.follower))
    if plan.specification.probe and work.journal.probe is None:
        work.journal.note_probe(await _seen_of_server(spec, plan.meeting))
    for remark in plan.meeting.remarks:
        progress.noted(remark)
    async with OpenAIModel(
        spec,
        api_key=read_api_key(spec),
        concurrency=work.concurrency,
        meeting=plan.meeting,
        tell=progress.noted,
    ) as model:
        work.members = model.members
        await ask_all(
            _samples(plan, writer, work),
            model,
            work.journal,
            work.receive,
            concurrency=work.concurrency,
            observer=progress,
            prepare=work.prepare,
            load=model.load,
        )


async def _seen_of_server(spec: ModelSpec, meeting: Meeting) -> dict[str, Any]:
    """What the first server that is there is seen to do."""
    from assay.models.probe import probe

    base_url = next(url for url in spec.base_urls if server_root(url) in meeting.servers)
    one = msgspec.structs.replace(spec, base_url=base_url, replicas=())
    try:
        report = await probe(one, info=meeting.first, quick=True, seconds=_PROBE_SECONDS)
    except Exception as error:  # whatever a server makes of it, its run goes on
        return {"url": server_root(base_url), "error": type(error).__name__}
    seen: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(report))
    return seen


def _samples(plan: _Plan, writer: RequestWriter, work: _Work) -> Iterator[Sample | None]:
    """All samples, the longest answers first; or in random order, until nothing is left to decide (None: not yet)."""
    tasks, options, follower = plan.loaded.tasks, plan.specification.options, work.follower
    if follower is None:
        work.schedule = LongestFirst(streams(tasks, writer, options))
        return iter(work.schedule)
    in_any_order = {name: SamplesInAnyOrder(name, task, writer, options) for name, task in tasks.items()}
    return (None if drawn is None else in_any_order[drawn[0]].sample(drawn[1]) for drawn in follower.draw())


def _conclude(plan: _Plan, work: _Work) -> Evaluation:
    """Aggregate, judge and write."""
    stamp = work.journal.date_id or date_id()
    work.journal.finalise(stamp)
    results = aggregate(work.scores, plan.loaded)
    scores = measure(results["results"], work.scores, plan.loaded)
    checks = judge_checks(plan.checks, scores, work.live, work.follower)
    stopped_early = None if work.follower is None else work.follower.summary()
    if stopped_early is not None:
        scores = without_intervals(scores, stopped_early.complete_tasks)
    failures = tuple(failed for task in work.scores.values() for failed in task.failed_samples())
    seconds = time.time() - plan.started
    results |= describe_run(plan.specification, plan.started)
    results |= describe_tokenizer(plan.tokenizer, plan.specification.model.max_length)
    logged = work.scores if plan.specification.log_samples else {}
    results["task_hashes"] = {name: task.task_hash() for name, task in logged.items()}
    results |= describe_prompting(plan.specification, plan.tokenizer, seconds)
    corrected = corrections(work.scores, plan.specification.model)
    results["assay"] = {
        "scores": msgspec.to_builtins(scores),
        "corrections": msgspec.to_builtins(corrected),
        "checks": msgspec.to_builtins(checks),
        "failures": msgspec.to_builtins(failures),
        "fallbacks": {name: task.fallbacks for name, task in work.scores.items()},
        "totals": work.totals.summary(seconds) | {"concurrency": work.concurrency.summary()},
        "provenance": provenance(plan.specification, plan.meeting.first, plan.loaded, work.journal.path),
    }
    if work.journal.probe is not None:
        results["assay"]["probe"] = work.journal.probe
    if work.shares is not None:
        results["assay"]["endpoints"] = work.shares.summary(work.members, plan.meeting)
    if work.follower is not None:
        results["assay"]["evidence"] = msgspec.to_builtins(work.follower.evidence())
    if work.confinement is not None:
        results["assay"]["provenance"]["sandbox"] = msgspec.to_builtins(work.confinement)
    if stopped_early is not None:
        mark_stopped_early(results, stopped_early)
    file = write_results(plan.folder, stamp, results, logged)
    triage = explain_scores(file) if logged and needs_explanation(checks) else None
    if triage is not None:
        results["assay"]["triage"] = triage.recorded
        write_document(file, results)
    work.journal.finish(failed=len(failures))
    return Evaluation(
        results=results,
        results_file=file,
        scores=scores,
        checks=checks,
        failures=failures,
        journal=work.journal.path,
        corrections=corrected,
        stopped_early=stopped_early,
        triage=triage,
    )


def _open_model(spec: ModelSpec) -> OpenAIModel:
    return OpenAIModel(spec, api_key=read_api_key(spec))


def _folder(specification: Specification) -> Path:
    return model_folder(specification.output_dir, specification.model.model)


def _ensure_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create the output directory {folder}: {error.strerror or error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"the output directory {folder} is not writable")


@contextmanager
def _interruptible(folder: Path) -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, and turn either into an error that says how to go on."""
    received: list[int] = []

    def as_interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        on_interrupt = signal.getsignal(signal.SIGINT)
        if not callable(on_interrupt):  # ignored, as a shell does it for jobs in the background
            raise KeyboardInterrupt
        on_interrupt(signal.SIGINT, frame)

    in_main_thread = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, as_interrupt) if in_main_thread else None
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        number = received[0] if received else signal.SIGINT
        raise RunInterrupted(
            f"stopped by {signal.Signals(number).name}; answers so far are kept in {folder / 'journal'}, "
            "run the same command again to go on",
            exit_code=128 + number,
        ) from None
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, previous)
