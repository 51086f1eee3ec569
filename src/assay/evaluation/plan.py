"""A run before its first request: loads tasks, resolves checks, and refuses what could never work."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.paths import keep_working_directory
from assay.checks.planned import PlannedCheck, plan_checks
from assay.checks.verdicts import refuse_outside_range, resolve_checks
from assay.client.adaptation import adapted
from assay.client.api_key import read_api_key
from assay.client.echo_probe import common_source, find_logprob_source
from assay.client.openai import OpenAIModel
from assay.client.request_shape import refuse_other_echo
from assay.client.urls import server_root
from assay.results.writing import (
    ensure_writable,
    model_folder,
    refuse_unwritable,
)
from assay.tasks.data import data_folder
from assay.tasks.declared_metrics import declared_metrics
from assay.tasks.index import TaskKind, task_index
from assay.tasks.library import LoadedTasks, find_entries, load_tasks
from assay.tasks.loglikelihood import (
    LoglikelihoodBodies,
    needs_loglikelihood,
    refuse_unscorable,
    refuse_unscorable_entries,
)
from assay.tasks.metric_ranges import UNIT, is_share
from assay.tasks.model_args import model_args
from assay.tasks.repeat_warnings import repeat_warnings
from assay.tasks.requests import RequestWriter, try_first_prompts
from assay.tasks.scoring_needs import require_scoring_needs
from assay.tasks.selection import chosen_documents, refuse_samples_of_others
from assay.tasks.settings_check import refuse_bypass_without_samples_file, setting_warnings, validate_settings
from assay.tasks.tokenizer import Tokenizer, tokenizer_of
from assay.types import LogprobSource, MetricKey

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.client.preflight import Preflight
    from assay.inprocess.engine import Engine
    from assay.types import ModelSpec, Specification


@dataclass(frozen=True)
class RunPlan:
    """A specification with its tasks loaded and its checks resolved; the whole run can be scored and judged."""

    specification: Specification
    preflight: Preflight
    started: float
    """Seconds since the epoch."""
    started_on_clock: float
    """Seconds of the monotonic clock."""
    folder: Path
    loaded: LoadedTasks
    tokenizer: Tokenizer | None
    checks: Sequence[PlannedCheck]
    documents: dict[str, Sequence[int]]
    """By task, the numbers of the documents to ask."""
    model_args: dict[str, Any]
    """The ``model_args`` that make lm-eval send the same requests."""
    first_body: bytes | None
    """Body of the first request, as lm-eval would send it."""
    engine: Engine | None = None
    """The model, if it answers in this process."""
    adaptations: tuple[str, ...] = ()
    """How requests were changed because the server refuses them otherwise, a line for each change."""

    @property
    def expected(self) -> dict[str, int]:
        """Samples by task."""
        return {name: len(numbers) for name, numbers in self.documents.items()}

    @property
    def remarks(self) -> list[str]:
        """Warnings to show before the run, one line each."""
        return [
            *setting_warnings(self.loaded.tasks, self.specification.options),
            *repeat_warnings(self.loaded.tasks, self.specification.options, self.specification.model),
            *(words for check in self.checks for words in check.doubts),
            *self.preflight.remarks,
            *self.adaptations,
        ]


@keep_working_directory()
def make_plan(specification: Specification, preflight: Preflight, engine: Engine | None = None) -> RunPlan:
    """Load the tasks and resolve the checks.

    Args:
        specification: a validated one.
        preflight: what the servers said about themselves.
        engine: the model, if it answers in this process.

    Raises:
        UsageError: it cannot be done as asked: an unknown task or metric, missing data, a folder that is not writable.
    """
    started, started_on_clock = time.time(), time.monotonic()
    model, options = specification.model, specification.options
    folder = run_folder(specification)
    ensure_writable(folder)
    url = None if engine else preflight.urls.get(server_root(model.base_url))
    arguments = model_args(model, url)
    loaded = load_tasks(specification.tasks, options, arguments)
    refuse_unscorable(loaded.tasks, model, specification.tasks, options.include_path)
    validate_settings(loaded.tasks)
    if specification.log_samples:
        refuse_unwritable(loaded.tasks)
    else:
        refuse_bypass_without_samples_file(loaded.tasks)
    require_scoring_needs(loaded.tasks)
    tokenizer = tokenizer_of(model) if engine is None else engine.tokenizer
    if tokenizer is not None and options.apply_chat_template:
        _ = tokenizer.chat_template  # raises now if there is none
    documents = chosen_documents(loaded.tasks, options)
    trial_source = None
    if needs_loglikelihood(loaded.tasks):
        refuse_other_echo(model)
        trial_source = LogprobSource.ECHO
    first_body = try_first_prompts(loaded.tasks, documents, RequestWriter(model, tokenizer, trial_source), options)
    return RunPlan(
        specification=specification,
        preflight=preflight,
        started=started,
        started_on_clock=started_on_clock,
        folder=folder,
        loaded=loaded,
        tokenizer=tokenizer,
        checks=plan_checks(specification, loaded),
        documents=documents,
        model_args=arguments,
        first_body=first_body,
        engine=engine,
    )


async def adapted_plan(plan: RunPlan) -> RunPlan:
    """The plan with the changes to requests that its first server needs, if servers are probed before the run."""
    specification = plan.specification
    if not specification.probe or plan.engine is not None or plan.first_body is None:
        return plan
    spec = specification.model
    base_url = next(url for url in spec.base_urls if server_root(url) in plan.preflight.servers)
    model, remarks = await adapted(msgspec.structs.replace(spec, base_url=base_url), plan.first_body)
    if not remarks:
        return plan
    changed = msgspec.structs.replace(model, base_url=spec.base_url)
    return dataclasses.replace(
        plan, specification=msgspec.structs.replace(specification, model=changed), adaptations=remarks
    )


def refuse_known_mistakes(specification: Specification) -> None:
    """Refuse mistakes that can be found without data or server.

    Raises:
        UsageError: the folder of data sets does not exist; a task is unknown, or the endpoint cannot score it; a
            check's task does not declare the metric, or no score could meet the check; documents of another task are
            chosen.
    """
    options, model = specification.options, specification.model
    _ = data_folder(options.data_dir)
    index = task_index(options.include_path)
    entries = find_entries(specification.tasks, index)
    refuse_unscorable_entries(entries, model, specification.tasks, index)
    if all(entry.kind is TaskKind.TASK for entry in entries):
        refuse_samples_of_others([entry.name for entry in entries], options)
    # Repeats add metrics, by filters and aggregations that are known only of loaded tasks.
    declared = declared_metrics(entries) if specification.checks and options.repeats is None else None
    if declared is not None:
        for check in resolve_checks(specification.checks, declared, specification.tasks):
            if check.range is None and is_share(MetricKey.read(check.metric).metric):
                refuse_outside_range(check, UNIT)


async def request_writer(plan: RunPlan) -> RequestWriter:
    """The writer of the run's requests; for log-likelihoods it uses the parameters that the server supports."""
    spec, tokenizer = plan.specification.model, plan.tokenizer
    if not needs_loglikelihood(plan.loaded.tasks):
        return RequestWriter(spec, tokenizer)
    if plan.engine is not None:
        return RequestWriter(spec, tokenizer, LogprobSource.ECHO)
    sources = {}
    for base_url in [url for url in spec.base_urls if server_root(url) in plan.preflight.servers]:
        async with open_model(msgspec.structs.replace(spec, base_url=base_url, replicas=())) as model:
            sources[base_url] = await find_logprob_source(
                model, lambda source: LoglikelihoodBodies(spec, tokenizer, source).trial()
            )
    return RequestWriter(spec, tokenizer, common_source(sources))


def open_model(spec: ModelSpec, *, is_probe: bool = False) -> OpenAIModel:
    """A client for a few requests, with its API key."""
    return OpenAIModel(spec, api_key=read_api_key(spec), is_probe=is_probe)


def run_folder(specification: Specification) -> Path:
    """The folder for the run's files."""
    return model_folder(specification.output_dir, specification.model.model)
