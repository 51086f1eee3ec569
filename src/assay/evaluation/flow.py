"""Evaluate a served model: specification in, results files and scores out.

Scores and verdicts are functions of specification and journal, so an interrupted run, started again, ends as if it had
never stopped and asks for no answer twice.
"""

from __future__ import annotations

import asyncio
import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from assay._util.event_loops import refuse_inside_event_loop, result_of
from assay._util.interruption import interruptible, run_stoppable
from assay._util.paths import keep_working_directory
from assay.engine import TOGETHER, ask_all
from assay.engine.schedule import LongestFirst
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
from assay.models.api_key import read_api_key
from assay.models.known_server import changes_of_servers, decoded, known_servers
from assay.models.openai import OpenAIModel
from assay.models.urls import server_root
from assay.progress import Progress
from assay.specification import validate
from assay.tasks.lm_eval_lock import async_lm_eval_lock, lm_eval_lock
from assay.tasks.requests import until_refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterator
    from pathlib import Path

    from assay.journal import Journal
    from assay.models.preflight import Preflight
    from assay.runs.samples import SampleReader
    from assay.tasks.requests import RequestWriter
    from assay.types import ModelSpec, Sample, Specification


__all__ = ["Evaluation", "evaluate", "evaluate_async"]

_T = TypeVar("_T")

_PROBE_SECONDS = 10.0
"""Longest that a run waits for what its server is seen to do."""


def evaluate(
    specification: Specification,
    progress: Progress | None = None,
    *,
    finish: bool = True,
    sample_reader: SampleReader | None = None,
) -> Evaluation:
    """Run `specification` and write its results.

    Threads may call it at the same time; the runs of one process wait for one another.

    Args:
        specification: what to ask of which model.
        progress: is told what happens; :func:`assay.show_progress` shows it.
        finish: let the run count as finished. Whoever has its outcome yet to tell does that afterwards, by
            :meth:`Evaluation.finish`: until then the same call asks nothing again and has the same outcome.
        sample_reader: reads the samples where their scores are explained, so that who needs them, too, does not read
            them again.

    Raises:
        UsageError: it cannot be done as asked (a bad value, an unknown task or metric, missing data, …).
        UnjudgeableError: the server cannot be reached, or refuses everything.
        RunInterrupted: stopped by Ctrl-C or SIGTERM; the same call goes on where it stopped.
    """
    refuse_inside_event_loop("evaluate", "await evaluate_async(specification)")
    specification = validate(specification)
    with _alone_in_thread(specification):
        with interruptible(_journals(specification)), asyncio.Runner() as runner:

            async def stoppable(work: Coroutine[Any, Any, _T]) -> _T:
                return run_stoppable(runner, work)

            evaluation = result_of(_evaluate(specification, progress or Progress(), stoppable, sample_reader))
        if finish:
            evaluation.finish()
        return evaluation


def _journals(specification: Specification) -> Path:
    return run_folder(specification) / "journal"


@contextmanager
def _alone_in_thread(specification: Specification) -> Iterator[None]:
    """Wait until no other run goes on, and keep others waiting."""
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
) -> Evaluation:
    """:func:`evaluate` for callers with an event loop of their own; cancelling it leaves a resumable run."""

    def in_this_loop(work: Coroutine[Any, Any, _T]) -> Awaitable[_T]:
        return work

    specification = validate(specification)
    async with async_lm_eval_lock():
        evaluation = await _evaluate(specification, progress or Progress(), in_this_loop, sample_reader)
        if finish:
            evaluation.finish()
        return evaluation


class _Waits(Protocol):
    """Waits for what needs an event loop.

    A run that has a loop of its own does all else outside of it, where a signal ends whatever goes on: see
    :class:`assay._util.interruption.Stop`.
    """

    def __call__(self, work: Coroutine[Any, Any, _T], /) -> Awaitable[_T]: ...


async def _evaluate(
    specification: Specification, progress: Progress, wait_for: _Waits, sample_reader: SampleReader | None
) -> Evaluation:
    with progress:
        refuse_known_mistakes(specification)
        preflight = await wait_for(_run_preflight(specification.model))
        plan = make_plan(specification, preflight)
        plan = await wait_for(adapted_plan(plan))
        writer = await wait_for(request_writer(plan))
        with open_state(plan) as state:
            with keep_working_directory():
                await wait_for(_answer(plan, writer, state, progress))
            return conclude(plan, state, sample_reader)


async def _run_preflight(spec: ModelSpec) -> Preflight:
    """Make sure that a server is there, takes the key and serves the model, before anything costs time."""
    async with open_model(spec, is_probe=True) as model:
        return await model.run_preflight()


async def _answer(plan: RunPlan, writer: RequestWriter, state: RunState, progress: Progress) -> None:
    """Ask for what the journal does not hold yet, and score each sample as its last answer arrives."""
    spec = plan.specification.model
    if state.stopper is not None:
        progress.may_stop_early(state.stopper.at_most)
    progress.loaded(plan.expected, state.journal.answers, state.journal.path)
    state.snapshot = RunSnapshot(state.scores, plan.checks, state.stopper)
    progress.watching(state.snapshot)
    if plan.specification.probe and state.journal.probe is None:
        state.journal.note_probe(await _seen_of_server(spec, plan.preflight))
    for remark in [*await _changes_since_it_began(plan, state.journal), *plan.remarks]:
        progress.noted(remark)
    async with OpenAIModel(
        spec,
        api_key=read_api_key(spec),
        concurrency=state.concurrency,
        preflight=plan.preflight,
        tell=progress.noted,
    ) as model:
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
            together=TOGETHER if state.stopper is None else 1,
        )


async def _changes_since_it_began(plan: RunPlan, journal: Journal) -> list[str]:
    """What of the servers changed since they gave the answers that the journal holds; and keeps what is known of them.

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


async def _seen_of_server(spec: ModelSpec, preflight: Preflight) -> dict[str, Any]:
    """What the first server that is there is seen to do."""
    from assay.models.probe.probing import look_at

    base_url = next(url for url in spec.base_urls if server_root(url) in preflight.servers)
    one = msgspec.structs.replace(spec, base_url=base_url, replicas=())
    try:
        report = await look_at(one, preflight.first, quick=True, seconds=_PROBE_SECONDS)
    except Exception as error:  # whatever a server makes of it, its run goes on
        return {"url": server_root(base_url), "error": type(error).__name__}
    seen: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(report))
    return seen


def _samples(plan: RunPlan, writer: RequestWriter, state: RunState, progress: Progress) -> Iterator[Sample | None]:
    """All samples, the longest answers first; or in random order, until nothing is left to decide (None: not yet)."""
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
