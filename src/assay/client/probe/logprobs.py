"""Probes of log-probabilities: of generated tokens, and of the prompt's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from assay.client.echo_probe import EchoTrial, fault_of_logprobs
from assay.client.probe.report import Capability, Observation, Observations, no, unknown, yes
from assay.client.probe.server import SEED, refused
from assay.errors import AssayError
from assay.types import LogprobSource, TextTail

if TYPE_CHECKING:
    from assay.client.probe.server import ServerUnderProbe

_TOPS = (50, 20, 10, 5, 1)
"""Values of ``top_logprobs`` to try, in this order: the limits of known servers."""


async def try_logprobs(server: ServerUnderProbe) -> Observations:
    """Which log-probabilities the server returns."""
    found: Observations = {}
    if "chat" in server.reference:
        found[Capability.CHAT_LOGPROBS] = await _chat(server)
    if "completions" in server.reference:
        found[Capability.COMPLETIONS_LOGPROBS] = await _completions(server)
        found[Capability.ECHO_LOGPROBS] = await _of_prompt(server, LogprobSource.ECHO)
        found[Capability.PROMPT_LOGPROBS] = await _of_prompt(server, LogprobSource.PROMPT_LOGPROBS)
    return found


async def _chat(server: ServerUnderProbe) -> Observation:
    last = unknown()
    for top in _TOPS:
        reply = await server.ask("chat", max_tokens=1, logprobs=True, top_logprobs=top)
        if reply.parsed is None:
            last = refused(reply)
            if reply.status in (400, 422):
                continue
            return last
        given = reply.at("choices", 0, "logprobs", "content", 0, "top_logprobs")
        if not isinstance(given, list):
            return no("ignored: no logprobs in the reply")
        return yes(f"{len(given)} given of top_logprobs = {top}", len(given))
    return last


async def _completions(server: ServerUnderProbe) -> Observation:
    reply = await server.ask("completions", max_tokens=1, logprobs=2)
    if reply.parsed is None:
        return refused(reply)
    if isinstance(reply.at("choices", 0, "logprobs", "token_logprobs"), list):
        return yes("in the shape of completions (token_logprobs)", "completions")
    if isinstance(reply.at("choices", 0, "logprobs", "content"), list):
        return yes("in the shape of chat completions (content)", "chat")
    return no("ignored: no logprobs in the reply")


_CONTEXT = "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday. The days of the week are Monday,"
_CONTINUATION = " Tuesday"


async def _of_prompt(server: ServerUnderProbe, source: LogprobSource) -> Observation:
    trial = EchoTrial(
        _CONTEXT + _CONTINUATION,
        _body(server, source, _CONTEXT + _CONTINUATION),
        TextTail(_CONTINUATION),
        _body(server, source, _CONTEXT),
    )
    try:
        fault = await fault_of_logprobs(server, trial)
    except AssayError as error:
        return unknown(server.clean(str(error)))
    if fault is not None:
        if source is LogprobSource.ECHO and await _ignores_echo(server):
            fault = f"ignored: {fault}"
        return no(server.clean(fault))
    return yes("the likeliest token in it is what is generated there")


async def _ignores_echo(server: ServerUnderProbe) -> bool:
    """Whether a reply to ``echo`` lacks the prompt at its beginning."""
    reply = await server.ask("completions", _CONTEXT, max_tokens=1, logprobs=1, echo=True)
    return reply.parsed is not None and not (reply.parsed.text or "").startswith(_CONTEXT)


def _body(server: ServerUnderProbe, source: LogprobSource, prompt: str) -> bytes:
    way = {"logprobs": 1, "echo": True} if source is LogprobSource.ECHO else {"prompt_logprobs": 1}
    body = {"model": server.model, "prompt": prompt, "temperature": 0, "max_tokens": 1, "seed": SEED, **way}
    return json.dumps(body).encode("ascii")
