"""The probe: which requests it sends, and in which order."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from assay._util.event_loops import refuse_inside_event_loop
from assay.client.api_key import read_api_key
from assay.client.openai import OpenAIModel
from assay.client.probe.behaviour import judge_same, try_repetition, try_seed, try_streaming
from assay.client.probe.generation import (
    ask_endpoint,
    judge_references,
    try_odd_requests,
    try_overflow,
    try_prompts,
    try_stops,
)
from assay.client.probe.identity import identify, read_metrics, tell_max_length, tell_models
from assay.client.probe.logprobs import try_logprobs
from assay.client.probe.report import NOT_ASKED, Capability, Observations, ProbeReport, no, yes
from assay.client.probe.server import ServerUnderProbe, text_of
from assay.client.probe.templates import look_at_template, tokenize, try_system_prompt
from assay.client.refusals import refusal_words, refuses_key
from assay.client.server_info import bare_name
from assay.client.urls import server_root
from assay.errors import ServerRefusedError, ServerUnreachableError, SpecificationError
from assay.types import ModelSpec

if TYPE_CHECKING:
    from assay.client.retry import Fault
    from assay.client.server_info import ServedModel, ServerInfo


def probe(server: str | ModelSpec, *, quick: bool = False, seconds: float = 120.0) -> ProbeReport:
    """Find out what a server can do, with about fifty short requests, most of them one at a time.

    Every reply is a finding, and so is a server that does not answer. Only the caller's mistakes raise.

    Args:
        server: its base URL, or the model and how to reach it. Without a model's name, the first model that the server
            lists is used. Replicas are ignored.
        quick: check only what may silently make scores wrong, with a dozen requests, most of them at once.
        seconds: time limit; what has not been checked by then is unknown.

    Raises:
        SpecificationError: the base URL is not valid, key or TLS cannot be used, or no model is named and the server
            lists none.
        ServerRefusedError: no model is named, and the server does not list any with this key.
    """
    refuse_inside_event_loop("probe", "await probe_async(server)")
    return asyncio.run(probe_async(server, quick=quick, seconds=seconds))


async def probe_async(server: str | ModelSpec, *, quick: bool = False, seconds: float = 120.0) -> ProbeReport:
    """:func:`probe` for callers with an event loop of their own."""
    spec = server if isinstance(server, ModelSpec) else ModelSpec(base_url=server, model="")
    if not seconds > 0:
        raise SpecificationError(f"seconds is {seconds:g}; it must be greater than 0")
    return await look_at(spec, None, quick=quick, seconds=seconds)


async def look_at(spec: ModelSpec, info: ServerInfo | None, *, quick: bool, seconds: float) -> ProbeReport:
    """:func:`probe`, with `info` if the server has already been asked for its models."""
    started = time.monotonic()
    api_key = read_api_key(spec)
    try:
        asked_before = 0 if info else 2
        info = info or await _run_preflight(spec, api_key)
    except ServerUnreachableError as error:
        unreachable = {Capability.REACHABLE: no(str(error))}
        return ProbeReport(
            url=server_root(spec.base_url),
            model=spec.model or None,
            findings=unreachable if quick else _complete(unreachable),
            requests=1,
            seconds=time.monotonic() - started,
        )
    name = spec.model or await _first(info, spec, api_key)
    served = next((listed for listed in info.models if name in (listed.id, *listed.aliases)), None)
    named = msgspec.structs.replace(spec, model=name)
    async with ServerUnderProbe(named, api_key=api_key, seconds=seconds) as server:
        server.max_length = served.max_model_len if served else None
        findings: Observations = {
            Capability.REACHABLE: yes(f"answers at {info.url}"),
            Capability.MODEL_LIST: tell_models(info, server.addresses.tried("models")),
        }
        if quick:
            identity, found = await asyncio.gather(identify(server, served), _look_quickly(server))
            findings |= {Capability.MAX_LENGTH: tell_max_length(identity.max_length), **found}
        else:
            identity = await identify(server, served)
            server.max_length = identity.max_length
            findings |= await _look(server)
            findings = _complete(findings)
        if asked_before and (refusal := _refused_all(server)):
            findings[Capability.REACHABLE] = no(refusal_words(server.address, refusal, spec))
        return ProbeReport(
            url=info.url,
            model=name,
            answered_as=_answered_as(server, served),
            software=identity.software or _owner(served),
            version=identity.version,
            models=info.models,
            max_length=identity.max_length,
            findings=findings,
            requests=server.requests + asked_before,
            seconds=round(time.monotonic() - started, 3),
        )


async def _run_preflight(spec: ModelSpec, api_key: str | None) -> ServerInfo:
    async with OpenAIModel(spec, api_key=api_key) as model:
        return await model.server_info()


async def _first(info: ServerInfo, spec: ModelSpec, api_key: str | None) -> str:
    if info.models:
        return info.models[0].id
    async with ServerUnderProbe(spec, api_key=api_key) as server:
        reply = await server.list_models()
    fault = server.refusals.get("models")
    if fault is not None and refuses_key(fault):
        raise ServerRefusedError(refusal_words(info.url, fault, spec))
    why = f" ({reply.fault})" if reply.fault else ""
    raise SpecificationError(f"the server at {info.url} lists no models{why}; name the one to ask with --model")


def _answered_as(server: ServerUnderProbe, served: ServedModel | None) -> str | None:
    asked = server.model
    known = {asked} if served is None else {asked, served.id, *served.aliases}
    parsed = (answer.model for answer in server.reference.values() if answer.model is not None)
    return next((server.clean(name) for name in parsed if name not in known and bare_name(name) != asked), None)


def _refused_all(server: ServerUnderProbe) -> Fault | None:
    """A refusal, preferably of the key, if the server refused every request; else None."""
    if server.reference or not {"chat", "completions"} <= server.refusals.keys():
        return None
    return min(server.refusals.values(), key=lambda fault: not refuses_key(fault))


def _owner(served: ServedModel | None) -> str | None:
    return served.owned_by if served else None


async def _look_quickly(server: ServerUnderProbe) -> Observations:
    *groups, repeated = await asyncio.gather(
        ask_endpoint(server, "chat"),
        ask_endpoint(server, "completions"),
        tokenize(server),
        try_system_prompt(server),
        server.ask("chat"),
    )
    found = {capability: finding for group in groups for capability, finding in group.items()}
    found |= judge_references(server)
    found |= await look_at_template(server)
    if "chat" in server.reference:
        found[Capability.REPEATABLE] = judge_same([repeated], text_of(server.reference["chat"]))
    return {capability: found[capability] for capability in Capability if capability in found}


async def _look(server: ServerUnderProbe) -> Observations:
    found = {Capability.MAX_LENGTH: tell_max_length(server.max_length)}
    found |= await read_metrics(server)
    found |= await ask_endpoint(server, "chat")
    found |= await ask_endpoint(server, "completions")
    found |= judge_references(server)
    found |= await tokenize(server)
    if kind := server.endpoint:
        found |= await try_seed(server, kind)
        found |= await try_stops(server, kind)
        found |= await try_streaming(server, kind)
        found |= await look_at_template(server)
        found |= await try_system_prompt(server)
        found |= await try_prompts(server)
        found |= await try_logprobs(server)
        found |= await try_odd_requests(server, kind)
        found |= await try_overflow(server, kind)
        found |= await try_repetition(server, kind)
    return found


def _complete(findings: Observations) -> Observations:
    """All capabilities in order; those not checked are unknown."""
    return {capability: findings.get(capability, NOT_ASKED) for capability in Capability}
