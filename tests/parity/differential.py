"""One batch of tasks by the real lm-eval and by Assay, against the same server: what differs, task by task."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from assay.evaluation import evaluate
from assay.lm_eval_process.process import run_lm_eval
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from assay.tasks.index import TaskKind, task_index
from assay.tasks.library import load_tasks
from assay.tasks.loglikelihood import needs_loglikelihood
from assay.tasks.requests import RequestWriter, samples
from assay.types import LogprobSource, ModelSpec, Sample, Specification, TaskOptions
from tests.lm_eval_files import Difference, RunFiles, differences
from tests.parity.answers import AnswerBook, text_of
from tests.servers.scripted import ScriptedServer

MODEL = "scripted-model"
_CONCURRENCY = 16
_QUESTIONS_THAT_TRY_THE_SERVER = 2
"""Before a run that needs log-likelihoods; lm-eval asks none."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Tasks that one process of lm-eval runs."""

    tasks: tuple[str, ...]
    """Names of tasks, groups and tags."""
    endpoint: Literal["chat", "completions"]
    tokenizer: str | None = None
    """A folder; needed for log-likelihoods."""
    num_fewshot: int | None = None
    fewshot_as_multiturn: bool = True
    runs_code: bool = False
    """Run the programs that are answered."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a comparison reads and writes."""

    data_dir: Path
    scratch: Path
    include_path: Path | None = None


@dataclass(frozen=True)
class Comparison:
    """What came out."""

    batch: Batch
    documents: Counter[str]
    """By task, without groups."""
    requests: Counter[str]
    subtasks: dict[str, list[str]]
    """By name asked for, the tasks that it stands for."""
    differences: list[Difference]
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each engine, ``lm_eval`` and ``assay``."""


def compare(batch: Batch, place: Place, limit: int) -> Comparison:
    """Run `batch` by both engines and compare requests and files.

    Raises:
        AssayError: an engine ended without results.
    """
    tokenizer = None if batch.tokenizer is None else HuggingFaceTokenizer(batch.tokenizer)
    options = TaskOptions(
        limit=limit,
        num_fewshot=batch.num_fewshot,
        fewshot_as_multiturn=batch.fewshot_as_multiturn,
        include_path=None if place.include_path is None else str(place.include_path),
        confirm_run_unsafe_code=batch.runs_code,
        data_dir=str(place.data_dir),
    )
    loaded = load_tasks(batch.tasks, options, {})
    model = ModelSpec(
        base_url="http://localhost", model=MODEL, endpoint=batch.endpoint, tokenizer=batch.tokenizer, concurrency=16
    )
    needs_logprobs = needs_loglikelihood(loaded.tasks)
    writer = RequestWriter(model, tokenizer, LogprobSource.ECHO if needs_logprobs else None)
    asked = list(_all_samples(loaded.tasks, writer, options))
    book = AnswerBook(asked, tokenizer)
    seconds = {}
    with ScriptedServer(answer=book.answer, models=[MODEL]) as server:
        started = time.monotonic()
        theirs = RunFiles.read(_run_lm_eval(batch, place, limit, server.url))
        seconds["lm_eval"] = time.monotonic() - started
        their_bodies = [text_of(request.body) for request in server.requests]
        server.requests.clear()
        started = time.monotonic()
        evaluation = evaluate(
            Specification(
                tasks=batch.tasks,
                model=_at(model, server.url),
                options=options,
                output_dir=str(place.scratch / "assay"),
                fresh=True,
            )
        )
        seconds["assay"] = time.monotonic() - started
        tries = _QUESTIONS_THAT_TRY_THE_SERVER if needs_logprobs else 0
        our_bodies = [text_of(request.body) for request in server.requests[tries:]]
    ours = RunFiles.read(evaluation.results_file)
    found = [
        *_body_differences(Counter(their_bodies), Counter(our_bodies), book),
        *(
            Difference(failed.task, f"document {failed.doc_id}", "a score", failed.message)
            for failed in evaluation.failures
        ),
        *differences(theirs, ours),
    ]
    return Comparison(
        batch,
        Counter(sample.task for sample, _ in asked),
        Counter(request.task for sample, _ in asked for request in sample.requests),
        {name: sorted(_tasks_of(name, theirs.results)) for name in batch.tasks},
        found,
        seconds,
    )


def _tasks_of(name: str, results: dict[str, Any]) -> set[str]:
    """The tasks of lm-eval's `results` that `name`, a task, group or tag, stands for."""
    entry = task_index().entries.get(name)
    if entry is not None and entry.kind is TaskKind.TAG:
        members: Sequence[str] = entry.tags
    else:
        members = results["group_subtasks"].get(name) or ()
    return {task for member in members for task in _tasks_of(member, results)} if members else {name}


def _all_samples(tasks: dict[str, Any], writer: RequestWriter, options: TaskOptions) -> Iterator[tuple[Sample, Any]]:
    for name, task in tasks.items():
        yield from zip(samples(name, task, writer, options), itertools.repeat(task))


def _run_lm_eval(batch: Batch, place: Place, limit: int, url: str) -> str:
    extra: Sequence[str] = () if place.include_path is None else ("--include_path", str(place.include_path))
    if batch.tokenizer is not None:
        arguments = (
            f"model={MODEL},base_url={url}/v1/completions,num_concurrent={_CONCURRENCY},timeout=600,"
            f"tokenizer_backend=huggingface,tokenizer={batch.tokenizer},tokenized_requests=True"
        )
        extra = (*extra, "--model_args", arguments)
    data_dir = place.data_dir
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if batch.runs_code:
            extra = (*extra, "--confirm_run_unsafe_code")
            data_dir = stack.enter_context(_code_eval_beside(place))
        _, file = run_lm_eval(
            url,
            MODEL,
            str(place.scratch / "lm_eval"),
            ",".join(batch.tasks),
            limit=limit,
            use_chat=batch.endpoint == "chat",
            fewshot_as_multiturn=batch.fewshot_as_multiturn,
            num_fewshot=batch.num_fewshot,
            max_concurrent=_CONCURRENCY,
            extra_args=extra,
            data_dir=str(data_dir),
        )
    return file


@contextlib.contextmanager
def _code_eval_beside(place: Place) -> Iterator[Path]:
    """A folder that shows the data sets and, beside them, the metric that lm-eval would fetch from the hub."""
    shown = place.scratch / "data-and-metric"
    shown.mkdir(parents=True)
    for folder in [*place.data_dir.iterdir(), Path(__file__).parent / "code_eval"]:
        (shown / folder.name).symlink_to(folder.absolute())
    settings = {"HF_ALLOW_CODE_EVAL": "1", "HF_MODULES_CACHE": str(place.scratch / "modules")}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield shown
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def _at(model: ModelSpec, url: str) -> ModelSpec:
    return msgspec.structs.replace(model, base_url=url)


def _body_differences(theirs: Counter[str], ours: Counter[str], book: AnswerBook) -> Iterator[Difference]:
    for body in (theirs - ours) | (ours - theirs):
        yield Difference(book.task_of.get(body), f"times asked: {body[:2000]}", str(theirs[body]), str(ours[body]))
