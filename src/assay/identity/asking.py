"""Asks a server for first tokens: alone and among others, so that a record knows what batching changes."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from assay.client.api_key import read_api_key
from assay.client.openai import OpenAIModel
from assay.errors import NothingMeasuredError, SpecificationError, UnsupportedTaskError
from assay.identity.fingerprint import FEWEST, Fingerprint, record_of
from assay.identity.prompts import PROMPTS
from assay.identity.top_logprobs import FirstToken, first_token_body, read_first_token
from assay.types import Failure, FailureCause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.types import ModelSpec

_AT_ONCE = 8
_PATIENCE = 3
"""Prompts without log-probabilities, and none with."""
_SHAPE = frozenset({FailureCause.UNREADABLE_REPLY, FailureCause.BAD_REQUEST})


async def take_fingerprint_async(
    spec: ModelSpec, *, repetitions: int, on_progress: Callable[[str], None] = lambda _: None
) -> Fingerprint:
    """:func:`assay.take_fingerprint` in an event loop."""
    if repetitions < 2:
        raise SpecificationError(f"{repetitions} repetition shows no noise; at least 2 are needed")
    async with OpenAIModel(spec, api_key=read_api_key(spec)) as model:
        preflight = await model.run_preflight()
        answers: list[list[FirstToken]] = [[] for _ in PROMPTS]
        failures: dict[int, Failure] = {}
        for repetition in range(repetitions):
            on_progress(f"{repetition} of {repetitions} repetitions of {len(PROMPTS)} prompts")
            # Every second time among others.
            at_once = _AT_ONCE if repetition % 2 else 1
            numbers = [number for number in range(len(PROMPTS)) if number not in failures]
            for start in range(0, len(numbers), at_once):
                part = numbers[start : start + at_once]
                replies = await asyncio.gather(*(first_token(model, PROMPTS[number]) for number in part))
                for number, reply in zip(part, replies, strict=True):
                    if isinstance(reply, Failure):
                        failures[number] = reply
                        refuse_silent(failures, answered=sum(map(len, answers)), spec=spec)
                    else:
                        answers[number].append(reply)
    complete = [number for number in range(len(PROMPTS)) if number not in failures]
    if len(complete) < FEWEST:
        reason = next(iter(failures.values()))
        raise NothingMeasuredError(f"only {len(complete)} of {len(PROMPTS)} prompts were answered: {reason.message}")
    server = preflight.first.models[0].owned_by if preflight.first.models else None
    return Fingerprint(
        model=spec.model,
        url=model.address,
        server=server,
        endpoint=spec.endpoint,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        repetitions=repetitions,
        seed=spec.seed,
        prompts=tuple(record_of(PROMPTS[number], answers[number]) for number in complete),
    )


async def first_token(model: OpenAIModel, prompt: str) -> FirstToken | Failure:
    """Ask for one token after a prompt."""
    spec = model.spec
    body = first_token_body(spec.endpoint, spec.model, prompt, spec.seed)
    return await model.exchange(json.dumps(body).encode("ascii"), read_first_token)


def refuse_silent(failures: Mapping[int, Failure], *, answered: int, spec: ModelSpec) -> None:
    """Refuse a server that gives no log-probabilities, before more is asked.

    A single prompt may get none: llama.cpp gives none of half a character.

    Raises:
        UnsupportedTaskError: with what the server did, and what to do instead.
    """
    failure = next(iter(failures.values()))
    if answered == 0 and len(failures) >= _PATIENCE and failure.cause in _SHAPE:
        other = "--completions" if spec.endpoint == "chat" else "the chat endpoint (without --completions)"
        raise UnsupportedTaskError(
            f"the server gives no log-probabilities of the first token ({failure.message}); try {other}, or compare "
            "scores (assay gate)"
        )
