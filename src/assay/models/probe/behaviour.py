"""How a server behaves over several requests: seeds, repetition, company, streaming."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from assay.models.probe.report import Capability, Finding, Findings, no, unknown, yes
from assay.models.probe.server import PROMPT, Reply, at, refused, text_of

if TYPE_CHECKING:
    from assay.models.probe.server import ServerUnderProbe
    from assay.types import EndpointKind

_REPETITIONS = 2
_COMPANY_TOKENS = 32
"""Twice the usual number: the longer an answer, the likelier that rounding in another batch turns it."""
_COMPANY = tuple(
    f"Say in one sentence what {thing} is made of."
    for thing in ("bread", "glass", "snow", "paper", "steel", "honey", "sand", "chalk")
)


async def try_seed(server: ServerUnderProbe, kind: EndpointKind) -> Findings:
    """Whether an equal seed gives an equal answer when sampling, and another seed another."""
    texts = []
    for seed in (11, 11, 22):
        reply = await server.ask(kind, temperature=1.0, seed=seed)
        if reply.said is None:
            return {Capability.SEED: refused(reply)}
        texts.append(text_of(reply.said))
    first, again, other = texts
    if first != again:
        return {Capability.SEED: no("equal seeds, unequal answers")}
    if first == other:
        return {
            Capability.SEED: unknown("equal answers for unequal seeds too: nothing was sampled, or seeds do nothing")
        }
    return {Capability.SEED: yes("equal for equal seeds, unequal for unequal ones")}


async def try_repetition(server: ServerUnderProbe, kind: EndpointKind) -> Findings:
    """Whether temperature 0 gives the same answer again, and the same in the company of other requests."""
    reference = text_of(server.reference[kind])
    again = [await server.ask(kind) for _ in range(_REPETITIONS)]
    alone = [await server.ask(kind, prompt, max_tokens=_COMPANY_TOKENS) for prompt in _COMPANY]
    together = await asyncio.gather(*(server.ask(kind, prompt, max_tokens=_COMPANY_TOKENS) for prompt in _COMPANY))
    return {
        Capability.REPEATABLE: _judge_same(again, [reference] * _REPETITIONS),
        Capability.REPEATABLE_TOGETHER: _judge_together(alone, together),
    }


def _judge_same(replies: list[Reply], texts: list[str]) -> Finding:
    if missing := next((reply for reply in replies if reply.said is None), None):
        return refused(missing)
    same = sum(text_of(reply.said) == text for reply, text in zip(replies, texts, strict=True))
    evidence = f"{same} of {len(texts)} repetitions gave the first answer"
    return yes(evidence) if same == len(texts) else no(evidence)


def _judge_together(alone: list[Reply], together: list[Reply]) -> Finding:
    if missing := next((reply for reply in (*alone, *together) if reply.said is None), None):
        return refused(missing)
    same = sum(text_of(one.said) == text_of(other.said) for one, other in zip(alone, together, strict=True))
    evidence = f"{same} of {len(alone)} prompts gave the same answer alone and all at once"
    return yes(evidence, same) if same == len(alone) else no(evidence, same)


async def try_streaming(server: ServerUnderProbe, kind: EndpointKind) -> Findings:
    """Whether an answer comes in parts, and how soon the first part does."""
    body = server.body(kind, PROMPT, stream=True, stream_options={"include_usage": True})
    return {Capability.STREAMING: await _stream(server, kind, json.dumps(body).encode("ascii"))}


async def _stream(server: ServerUnderProbe, kind: EndpointKind, body: bytes) -> Finding:
    import aiohttp

    timeout = server.time_left()
    if timeout <= 0:
        return unknown("no time was left to ask")
    server.requests += 1
    started = time.monotonic()
    try:
        async with (
            aiohttp.ClientSession(
                headers=server.headers, proxy=server.proxy, connector=aiohttp.TCPConnector(ssl=server.context)
            ) as session,
            session.post(
                server.url(kind), data=body, timeout=aiohttp.ClientTimeout(total=timeout), allow_redirects=False
            ) as reply,
        ):
            if reply.status != 200:
                content = await reply.content.read(4096)
                said = server.clean(f"HTTP {reply.status}: {content.decode('utf-8', 'replace')}")
                return refused(Reply(status=reply.status, fault=said))
            return await _read_stream(reply, started)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return unknown(server.clean(f"the stream broke off: {type(error).__name__}"))


async def _read_stream(reply: object, started: float) -> Finding:
    import aiohttp

    assert isinstance(reply, aiohttp.ClientResponse)  # noqa: S101 - aiohttp is imported only here
    parts, first, done, usage = 0, None, False, False
    async for line in reply.content:
        kind, _, data = line.decode("utf-8", "replace").strip().partition(":")
        if kind != "data":
            continue
        if data.strip() == "[DONE]":
            done = True
            break
        event = _json(data)
        usage = usage or at(event, "usage", "completion_tokens") is not None
        if _delta(event):
            parts += 1
            first = time.monotonic() - started if first is None else first
    if first is None:
        return no(f"no event with text in a reply of type {reply.content_type}"[:160])
    ending = f"{'' if done else 'no [DONE], '}{'' if usage else 'no '}usage at the end"
    return yes(f"{parts} parts, the first after {first:.2f} s, {ending}", round(first, 3))


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
