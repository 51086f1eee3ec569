"""A client and servers that answer from a script, in virtual time: an outage of hours takes milliseconds."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from multidict import CIMultiDict

from assay.client.endpoint import Endpoint
from assay.client.openai import OpenAIModel
from assay.client.replies import ReplyError
from assay.client.retry import Fault, Retryability, reply_fault, status_fault
from assay.errors import AssayError
from assay.types import Answer, Failure, FailureCause, ModelSpec, Request, Response
from tests.client.clocks import VirtualTime
from tests.servers.scripted import reply_with

Body = Mapping[str, Any]
Script = Callable[[float, Body], Fault | str | Body]
"""What a request gets at so many seconds after the start: the text of an answer, a whole reply, or a fault."""

NO_CONNECTION = Fault(FailureCause.UNREACHABLE, "no connection: Connection refused", Retryability.SERVER_DOWN)


def says(status: int, message: str = "", **headers: str) -> Fault:
    """The fault of a reply with this status, message and headers."""
    body = message if message.startswith("<") else json.dumps({"error": {"message": message}})
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status_fault(status, body.encode(), CIMultiDict(named))


@dataclass
class Played:
    """What became of some requests."""

    responses: dict[int, Response] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """The prompts of all attempts, in order."""
    told: list[str] = field(default_factory=list)
    error: AssayError | None = None
    seconds: float = 0.0

    @property
    def answers(self) -> int:
        return sum(isinstance(response, Answer) for response in self.responses.values())

    @property
    def failures(self) -> list[Failure]:
        return [response for response in self.responses.values() if isinstance(response, Failure)]


def prompt(number: int, length: int = 1) -> str:
    return f"question {number} " * length


def request(number: int, length: int = 1) -> Request:
    said = [{"role": "user", "content": prompt(number, length)}]
    body = {"messages": said, "model": "m", "max_tokens": 16, "temperature": 0, "stop": ["\n"], "seed": 1234}
    return Request("task", number, 0, 0, "generate_until", json.dumps(body).encode(), f"key-{number}")


def play(
    *scripts: Script,
    requests: Sequence[Request] | int = 200,
    seconds: float | Callable[[float, Body], float] = 0.1,
    healthy: Callable[[float], bool] = lambda _: True,
    concurrency: int = 16,
    **spec: Any,
) -> Played:
    """Ask servers with these scripts until all requests have their response, or the run ends.

    Args:
        scripts: one for each server.
        requests: what is asked, or how many.
        seconds: that a reply takes.
        healthy: whether ``/health`` is, at so many seconds after the start.
        concurrency: requests outstanding at once.
        **spec: more of the model's specification.
    """
    time, played = VirtualTime(), Played()
    todo = list(map(request, range(requests)) if isinstance(requests, int) else requests)[::-1]
    urls = [f"http://server-{number}" for number in range(len(scripts))]
    model = OpenAIModel(
        ModelSpec(base_url=urls[0], replicas=tuple(urls[1:]), model="m", concurrency=concurrency, **spec),
        api_key=None,
        clock=time.clock,
        sleep=time.sleep,
        rng=random.Random(0),
        tell=played.told.append,
    )
    start = time.now

    def answer_from(endpoint: Endpoint, script: Script) -> None:
        async def attempt(payload: bytes, read: Callable[[bytes], Any]) -> Any:
            body = json.loads(payload)
            played.asked.append(body["messages"][0]["content"])
            await time.sleep(seconds(time.now - start, body) if callable(seconds) else seconds)
            said = script(time.now - start, body)
            if isinstance(said, Fault):
                return said
            try:
                return read(json.dumps(reply_with(said, body) if isinstance(said, str) else said).encode())
            except ReplyError as error:
                return reply_fault(error, endpoint.address)

        async def looks_alive() -> bool:
            return healthy(time.now - start)

        endpoint.__dict__.update(attempt=attempt, looks_alive=looks_alive)

    async def work() -> None:
        while todo:
            one = todo.pop()
            played.responses[one.doc_id] = await model.ask(one)

    async def run() -> None:
        try:
            async with model, asyncio.TaskGroup() as workers:
                for endpoint, script in zip(model.endpoints, scripts, strict=True):
                    answer_from(endpoint, script)
                for _ in range(concurrency):
                    workers.create_task(work())
        except* AssayError as errors:
            [played.error] = {str(error): error for error in _all(errors)}.values()

    asyncio.run(time.run(run()))
    played.seconds = time.now - start
    return played


def _all(errors: BaseExceptionGroup[AssayError]) -> list[AssayError]:
    return [error for error in errors.exceptions if isinstance(error, AssayError)]
