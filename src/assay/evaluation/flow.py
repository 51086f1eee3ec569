"""Evaluate a served model: specification in, results files and scores out.

Scores and verdicts depend on the specification and the journal alone. So an interrupted run that is started again has
the same outcome as one that was never interrupted, and asks for no answer twice.
"""

from __future__ import annotations

import asyncio
import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from assay._util.event_loops import refuse_inside_event_loop, run_without_loop
from assay._util.interruption import interruptible, run_stoppable
from assay._util.paths import keep_working_directory
from assay.checks.planned import refuse_other_requests
from assay.client.api_key import read_api_key
from assay.client.known_server import changes_of_servers, decoded, known_servers
from assay.client.openai import OpenAIModel
from assay.client.urls import server_root
from assay.errors import SpecificationError
from assay.evaluation.any_order import SamplesInAnyOrder
from assay.evaluation.finish import Evaluation, conclude
from assay.evaluation.plan import (
    RunPlan,
    adapted_plan,
    make_plan,
    open_model,
    refuse_known_mistakes,
    request_writer,
    run_folder,
)
from assay.evaluation.snapshot import RunSnapshot
from assay.evaluation.state import RunState, open_state
from assay.evaluation.streams import streams
from assay.inprocess.answering import InProcessModel
from assay.inprocess.preparing import load_engine, local_preflight, with_engine
from assay.progress import Progress
from assay.scheduling import BATCH_SIZE, ask_all
from assay.scheduling.schedule import LongestFirst
from assay.specification import validate
from assay.tasks.lm_eval_lock import async_lm_eval_lock, lm_eval_lock
from assay.tasks.requests import until_refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterator
    from pathlib import Path

    from assay.client.preflight import Preflight
    from assay.inprocess.engine import Engine
    from assay.journal import Journal
    from assay.runs.samples import SampleReader
    from assay.tasks.requests import RequestWriter
    from assay.types import ModelSpec, Sample, Specification


__all__ = ["Evaluation", "evaluate", "evaluate_async"]

_T = TypeVar("_T")

_PROBE_SECONDS = 10.0
"""Longest time for the probe before a run."""


def evaluate(
    specification: Specification,
    progress: Progress | None = None,
    *,
    finish: bool = True,
    sample_reader: SampleReader | None = None,
    engine: Engine | None = None,
) -> Evaluation:
    """Run `specification` and write its results.

    Several threads may call it; the runs of one process take turns.

    Args:
        specification: what to ask of which model.
        progress: is told what happens; :func:`assay.show_progress` shows it.
        finish: mark the run as finished. With False, the caller first reports the outcome, then calls
            :meth:`Evaluation.finish`. Until then the same call asks nothing again and has the same outcome.
        sample_reader: reads the samples for triage; a caller that needs them too saves reading them again.
        engine: an engine of one's own that answers in this process, for a model made by :func:`assay.LocalModel`.

    Raises:
        UsageError: it cannot be done as asked (a bad value, an unknown task or metric, missing data, …).
        UnjudgeableError: the server cannot be reached, or refuses everything.
        RunInterrupted: stopped by Ctrl-C or SIGTERM; the same call continues where it stopped.
    """
    refuse_inside_event_loop("evaluate", "await evaluate_async(specification)")
    specification = validate(specification)
    with _one_run_at_a_time(specification):
        with interruptible(_journals(specification)), asyncio.Runner() as runner:

            async def stoppable(work: Coroutine[Any, Any, _T]) -> _T:
                return run_stoppable(runner, work)

            evaluation = run_without_loop(
                _evaluate(specification, progress or Progress(), stoppable, sample_reader, engine)
            )
        if finish:
            evaluation.finish()
        return evaluation


def _journals(specification: Specification) -> Path:
    return run_folder(specification) / "journal"


@contextmanager
def _one_run_at_a_time(specification: Specification) -> Iterator[None]:
    """Wait for other runs of this process to end, and make later ones wait for this one."""
    with ExitStack() as held:
        with interruptible(_journals(specification)):
            held.enter_context(lm_eval_lock("evaluate"))
        yield


async def evaluate_async(
    specification: Specification,
    progress: Progress | None = None,
    *,
    finish: bool = True,
    sample_reader: SampleReader | None = None,
    engine: Engine | None = None,
) -> Evaluation:
    """:func:`evaluate` for callers with an event loop of their own; cancelling it leaves a resumable run."""

    def in_this_loop(work: Coroutine[Any, Any, _T]) -> Awaitable[_T]:
        return work

    specification = validate(specification)
    async with async_lm_eval_lock():
        evaluation = await _evaluate(specification, progress or Progress(), in_this_loop, sample_reader, engine)
        if finish:
            evaluation.finish()
        return evaluation


class _WaitFor(Protocol):
    """Runs a coroutine in the event loop and waits for it.

    :func:`evaluate` uses its loop only for this. Everything else runs outside the loop, where a signal can end it; see
    :class:`assay._util.interruption.Stop`.
    """

    def __call__(self, work: Coroutine[Any, Any, _T], /) -> Awaitable[_T]: ...


async def _evaluate(
    specification: Specification,
    progress: Progress,
    wait_for: _WaitFor,
    sample_reader: SampleReader | None,
    engine: Engine | None,
) -> Evaluation:
    with progress:
        refuse_known_mistakes(specification)
        if specification.model.local is not None:
            engine = engine or load_engine(specification.model)
            model = with_engine(specification.model, engine)
            specification = msgspec.structs.replace(specification, model=model)
            plan = make_plan(specification, local_preflight(model, engine), engine)
        else:
            _refuse_engine(specification.model, engine)
            plan = make_plan(specification, await wait_for(_run_preflight(specification.model)))
        plan = await wait_for(adapted_plan(plan))
        refuse_other_requests(plan.checks, plan.loaded, plan.specification.model)
        writer = await wait_for(request_writer(plan))
        with open_state(plan) as state:
            with keep_working_directory():
                await wait_for(_answer(plan, writer, state, progress))
            return conclude(plan, state, sample_reader)


def _refuse_engine(model: ModelSpec, engine: Engine | None) -> None:
    if engine is not None:
        raise SpecificationError(
            f"an engine is given, but the model is '{model.model}' at {server_root(model.base_url)}: name the model by "
            "assay.LocalModel"
        )


async def _run_preflight(spec: ModelSpec) -> Preflight:
    """Check that a server is up, accepts the key and serves the model, before anything takes time."""
    async with open_model(spec, is_probe=True) as model:
        return await model.run_preflight()


async def _answer(plan: RunPlan, writer: RequestWriter, state: RunState, progress: Progress) -> None:
    """Request the answers that the journal lacks, and score each sample when its last answer arrives."""
    if state.stopper is not None:
        progress.may_stop_early(state.stopper.max_documents)
    progress.loaded(plan.expected, state.journal.answers, state.journal.path)
    state.snapshot = RunSnapshot(state.scores, plan.checks, state.stopper)
    progress.watching(state.snapshot)
    changes = [] if plan.engine else await _known_servers(plan, state.journal)
    for remark in [*changes, *plan.remarks]:
        progress.noted(remark)
    async with _model(plan, state, progress) as model:
        state.members = model.members
        await ask_all(
            _samples(plan, writer, state, progress),
            model,
            state.journal,
            state.receive,
            concurrency=state.concurrency,
            observer=progress,
            prepare=state.prepare,
            load=model.load,
            until=None if state.stopper is None else state.stopper.wait_until_over,
            batch_size=BATCH_SIZE if state.stopper is None else 1,
        )


def _model(plan: RunPlan, state: RunState, progress: Progress) -> OpenAIModel | InProcessModel:
    """What answers the run's requests."""
    spec = plan.specification.model
    if plan.engine is not None:
        return InProcessModel(plan.engine, spec, progress.noted)
    return OpenAIModel(
        spec,
        api_key=read_api_key(spec),
        concurrency=state.concurrency,
        preflight=plan.preflight,
        tell=progress.noted,
    )


async def _known_servers(plan: RunPlan, journal: Journal) -> list[str]:
    """Probe the servers if that is asked for; how they changed since they gave the answers in the journal."""
    if plan.specification.probe and journal.probe is None:
        journal.note_probe(await _probe_server(plan.specification.model, plan.preflight))
    return await _server_changes(plan, journal)


async def _server_changes(plan: RunPlan, journal: Journal) -> list[str]:
    """How the servers changed since they gave the answers in the journal; records in it what is known of them now.

    Raises:
        ServerChangedError: another model is served under the same name.
    """
    spec, preflight = plan.specification.model, plan.preflight
    then = decoded(journal.servers or {}) if journal.answers else {}
    changes_of_servers(then, await known_servers(spec, preflight, ask=False), spec.model)
    now = await known_servers(spec, preflight, ask=plan.specification.probe)
    if now.keys() - then.keys():
        journal.note_servers(msgspec.to_builtins({**now, **then}))
    return changes_of_servers(then, now, spec.model)


async def _probe_server(spec: ModelSpec, preflight: Preflight) -> dict[str, Any]:
    """The report of a quick probe of the first server that is up."""
    from assay.client.probe.probing import look_at

    base_url = next(url for url in spec.base_urls if server_root(url) in preflight.servers)
    one = msgspec.structs.replace(spec, base_url=base_url, replicas=())
    try:
        report = await look_at(one, preflight.first, quick=True, seconds=_PROBE_SECONDS)
    except Exception as error:  # a probe never stops a run
        return {"url": server_root(base_url), "error": type(error).__name__}
    seen: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(report))
    return seen


def _samples(plan: RunPlan, writer: RequestWriter, state: RunState, progress: Progress) -> Iterator[Sample | None]:
    """The samples to ask: all, the longest answers first; or in random order until every check is decided.

    None from a run that stops early means that no sample can be asked at the moment.
    """
    tasks, options, stopper = plan.loaded.tasks, plan.specification.options, state.stopper

    def refuse(task: str, reason: str) -> None:
        state.scores[task].refuse(reason)
        progress.noted(reason)

    if stopper is None:
        state.schedule = LongestFirst(streams(tasks, writer, options, refuse))
        return iter(state.schedule)
    build = {
        name: until_refused(
            name, SamplesInAnyOrder(name, task, writer, options).sample, functools.partial(refuse, name)
        )
        for name, task in tasks.items()
    }
    return (None if drawn is None else build[drawn[0]](drawn[1]) for drawn in stopper.draw())
