"""Runs as files, made by ``assay.evaluate`` with a scripted model in this process in place of HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from lm_eval.api.task import ConfigurableTask

from assay.client.openai import OpenAIModel, TimedReply
from assay.client.preflight import Preflight
from assay.client.server_info import ServerInfo
from assay.evaluation import evaluate, flow, plan
from assay.types import Failure, FailureCause, ModelSpec, Request, Response, Specification, TaskOptions
from benchmarks.triage.documents import MatrixTask
from benchmarks.triage.replies import Reply, as_json, as_sent

Script = Callable[[str, int], Reply]
"""The reply to a task's document, before stop strings and limits."""
MODEL = "scripted"
_URL = "http://127.0.0.1:9"
_T = TypeVar("_T")


class ScriptedModel(OpenAIModel):
    """Sends nothing: a script answers, and the client reads the reply's JSON as if a server had sent it."""

    def __init__(self, script: Script, sent: dict[bytes, bytes], spec: ModelSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        self._sent = sent
        self._script = script
        self._asked: dict[bytes, Reply] = {}

    async def ask(self, request: Request) -> Response:
        """The answer to `request`, which the script gives."""
        self._asked[request.payload] = self._script(request.task, request.doc_id)
        return await super().ask(request)

    async def timed_exchange(self, payload: bytes, read: Callable[[bytes], _T]) -> TimedReply[_T] | Failure:
        """What the server would have sent, read as the client reads it."""
        body, reply = json.loads(payload), self._asked.pop(payload)
        if reply.status is not None:
            return Failure(cause=FailureCause.SERVER_ERROR, message="internal error", status=reply.status)
        sent = json.dumps(as_json(as_sent(reply, body), body)).encode()
        self._sent[payload] = sent
        return TimedReply(read(sent), latency=0.01, attempts=1, endpoint=reply.endpoint)

    async def run_preflight(self) -> Preflight:
        """A server that is up and lists no models."""
        return Preflight(servers={_URL: ServerInfo(_URL)}, urls={_URL: f"{_URL}/v1/chat/completions"})


def run(
    folder: Path,
    task: MatrixTask,
    script: Script,
    sent: dict[bytes, bytes] | None = None,
    *,
    target: Callable[[Any], Any] | None = None,
) -> Path:
    """Ask a task's documents, and score the answers with the task's own filters and metrics.

    Args:
        folder: for the run's files.
        task: the task.
        script: answers.
        sent: filled with the body of each reply, by the body of its request.
        target: what the data's right answers have become.

    Returns:
        The results file.
    """
    with _answered_by(script, {} if sent is None else sent), _targets_changed(target):
        done = evaluate(specification(folder, task, _URL))
    assert done.results_file is not None
    return done.results_file


def specification(folder: Path, task: MatrixTask, url: str) -> Specification:
    """The run of one task, in the documents' order."""
    return Specification(
        tasks=task.names,
        model=ModelSpec(base_url=url, model=MODEL, concurrency=1, max_attempts=1),
        options=TaskOptions(
            include_path=None if task.include is None else str(task.include),
            samples=dict(task.samples),
            confirm_run_unsafe_code=True,
        ),
        output_dir=str(folder),
        triage=False,
    )


@contextmanager
def _answered_by(script: Script, sent: dict[bytes, bytes]) -> Iterator[None]:
    def make(spec: ModelSpec, **options: Any) -> ScriptedModel:
        return ScriptedModel(script, sent, spec, **{"api_key": None, **options})

    with ExitStack() as held:
        for module, name in ((flow, "OpenAIModel"), (flow, "open_model"), (plan, "OpenAIModel"), (plan, "open_model")):
            held.enter_context(patch.object(module, name, make))
        yield


@contextmanager
def _targets_changed(target: Callable[[Any], Any] | None) -> Iterator[None]:
    if target is None:
        yield
        return
    original = ConfigurableTask.doc_to_target

    def changed(self: ConfigurableTask, *arguments: Any, **options: Any) -> Any:
        return target(original(self, *arguments, **options))

    with patch.object(ConfigurableTask, "doc_to_target", changed):
        yield
