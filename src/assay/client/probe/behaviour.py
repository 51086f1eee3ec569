"""Probes that compare several requests: seeds, repeatability alone and under load, streaming."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from assay.client.probe.report import Capability, Observation, Observations, no, unknown, yes
from assay.client.probe.server import ProbeReply, at, refused, text_of
from assay.client.transport import LARGEST_ERROR_BODY

if TYPE_CHECKING:
    from assay.client.probe.server import ServerUnderProbe
    from assay.types import EndpointKind

_REPETITIONS = 2
_COMPANY_TOKENS = 32
"""Twice the usual number: the longer an answer, the likelier that rounding in another batch changes it."""
_COMPANY = tuple(
    f"Say in one sentence what {thing} is made of."
    for thing in ("bread", "glass", "snow", "paper", "steel", "honey", "sand", "chalk")
)


async def try_seed(server: ServerUnderProbe, kind: EndpointKind) -> Observations:
    """Whether sampling with the same seed gives the same answer, and with another seed another one."""
    texts = []
    for seed in (11, 11, 22):
        reply = await server.ask(kind, temperature=1.0, seed=seed)
        if reply.parsed is None:
            return {Capability.SEED: refused(reply)}
        texts.append(text_of(reply.parsed))
    first, again, other = texts
    if first != again:
        return {Capability.SEED: no("equal seeds, unequal answers")}
    if first == other:
        return {
            Capability.SEED: unknown("equal answers for unequal seeds too: nothing was sampled, or seeds do nothing")
        }
    return {Capability.SEED: yes("equal for equal seeds, unequal for unequal ones")}


async def try_repetition(server: ServerUnderProbe, kind: EndpointKind) -> Observations:
    """Whether temperature 0 gives the same answer again, alone and among other requests."""
    reference = text_of(server.reference[kind])
    again = [await server.ask(kind) for _ in range(_REPETITIONS)]
    alone = [await server.ask(kind, prompt, max_tokens=_COMPANY_TOKENS) for prompt in _COMPANY]
    together = await asyncio.gather(*(server.ask(kind, prompt, max_tokens=_COMPANY_TOKENS) for prompt in _COMPANY))
    return {
        Capability.REPEATABLE: judge_same(again, reference),
        Capability.REPEATABLE_TOGETHER: _judge_together(alone, together),
    }


def judge_same(replies: list[ProbeReply], text: str) -> Observation:
    """Whether repeated requests gave the same text as the first."""
    if missing := next((reply for reply in replies if reply.parsed is None), None):
        return refused(missing)
    same = sum(text_of(reply.parsed) == text for reply in replies)
    evidence = f"{same} of {len(replies)} repetitions gave the first answer"
    return yes(evidence) if same == len(replies) else no(evidence)


def _judge_together(alone: list[ProbeReply], together: list[ProbeReply]) -> Observation:
    if missing := next((reply for reply in (*alone, *together) if reply.parsed is None), None):
        return refused(missing)
    same = sum(text_of(one.parsed) == text_of(other.parsed) for one, other in zip(alone, together, strict=True))
    evidence = f"{same} of {len(alone)} prompts gave the same answer alone and all at once"
    return yes(evidence, same) if same == len(alone) else no(evidence, same)


async def try_streaming(server: ServerUnderProbe, kind: EndpointKind) -> Observations:
    """Whether an answer is streamed, and how soon its first chunk comes."""
    seen = _Stream(time.monotonic())
    reply = await server.stream(kind, seen.feed, stream=True, stream_options={"include_usage": True})
    if reply.fault:
        return {Capability.STREAMING: refused(reply)}
    return {Capability.STREAMING: seen.finding(reply.headers.get("content-type", "no type"))}


class _Stream:
    """Observes a stream while it arrives."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._rest = b""
        self._parts = 0
        self._first: float | None = None
        self._is_done = self._has_usage = False

    def feed(self, part: bytes) -> bool:
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            self._take(line)
        return len(self._rest) <= LARGEST_ERROR_BODY

    def _take(self, line: bytes) -> None:
        kind, _, data = line.decode("utf-8", "replace").strip().partition(":")
        if kind != "data":
            return
        self._is_done = self._is_done or data.strip() == "[DONE]"
        event = _json(data)
        self._has_usage = self._has_usage or at(event, "usage", "completion_tokens") is not None
        if _delta(event):
            self._parts += 1
            self._first = time.monotonic() - self._started if self._first is None else self._first

    def finding(self, content_type: str) -> Observation:
        """The resulting observation."""
        if self._first is None:
            return no(f"no event with text in a reply of type {content_type}"[:160])
        ending = f"{'' if self._is_done else 'no [DONE], '}{'' if self._has_usage else 'no '}usage at the end"
        return yes(f"{self._parts} parts, the first after {self._first:.2f} s, {ending}", round(self._first, 3))


def _delta(event: object) -> bool:
    choice = at(event, "choices", 0)
    fields = (
        at(choice, "delta", "content"),
        at(choice, "delta", "reasoning_content"),
        at(choice, "delta", "reasoning"),
    )
    return any(isinstance(text, str) and text for text in (*fields, at(choice, "text")))


def _json(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value
