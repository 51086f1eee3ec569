"""Identifies a server: software, version, context length, gauges."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.client.probe.report import Capability, Observation, Observations, no, unknown, yes
from assay.client.probe.server import at, refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.client.probe.server import ProbeReply, ServerUnderProbe
    from assay.client.server_info import ServedModel, ServerInfo


class Identity(NamedTuple):
    """The server's software and version, as far as it tells."""

    software: str | None = None
    version: str | None = None
    max_length: int | None = None


_OWNERS = {"llamacpp": "llama.cpp", "library": "ollama"}
"""The software behind a value of ``owned_by`` that is not its name."""
_KNOWN_OWNERS = frozenset({"vllm", "sglang", "lmdeploy", "tensorrt_llm", *_OWNERS})
_GENERIC_HEADERS = frozenset(
    {"uvicorn", "nginx", "hypercorn", "gunicorn", "envoy", "istio-envoy", "caddy", "openresty"}
)
_PLACES = (
    ("/version", None, "version"),
    ("/get_server_info", "sglang", "context_length"),
    ("/server_info", "sglang", "context_length"),
    ("/info", "text-generation-inference", "max_total_tokens"),
    ("/api/version", None, "version"),
)
"""Paths that report a version; the software, if the reply has the third field too (a context length, if a number)."""


async def identify(server: ServerUnderProbe, served: ServedModel | None) -> Identity:
    """Ask the paths at which known servers identify themselves, until one answers.

    Args:
        server: the server.
        served: its entry for the model.
    """
    length = served.max_model_len if served else None
    props = await server.get("/props")
    build = at(props.json, "build_info")
    if isinstance(build, str) or props.headers.get("server") == "llama.cpp":
        own_length = at(props.json, "default_generation_settings", "n_ctx")
        return Identity("llama.cpp", server.clean(str(build)) if build else None, _int(own_length) or length)
    name = _name(server, served.owned_by if served else None, props.headers)
    for path, software, mark in _PLACES:
        told = (await server.get(path)).json
        version = at(told, "version")
        if isinstance(version, str) and at(told, mark) is not None:
            return Identity(software or name, server.clean(version), length or _int(at(told, mark)))
    if name is None and at((await server.get("/openapi.json")).json, "paths", "/load_model") is not None:
        name = "transformers serve"  # it sends neither name nor version, but no other server has this path
    return Identity(name, None, length)


def _name(server: ServerUnderProbe, owner: str | None, headers: Mapping[str, str]) -> str | None:
    """The software's name from the owner of its models or the header ``Server``, if they name any."""
    if owner in _KNOWN_OWNERS:
        return _OWNERS.get(owner, owner)
    header = headers.get("server", "")
    return None if header.partition("/")[0].lower() in _GENERIC_HEADERS else server.clean(header) or None


def tell_models(info: ServerInfo, asked: str) -> Observation:
    """What the list of models shows, which was asked for at an address."""
    if not info.models:
        return no(f"no list of models at {asked}")
    names = ", ".join(model.id for model in info.models[:3])
    more = f" and {len(info.models) - 3} more" if len(info.models) > 3 else ""
    return yes(names + more, len(info.models))


def tell_max_length(length: int | None) -> Observation:
    """Whether the server reports its context length."""
    return no("told nowhere") if length is None else yes(f"{length} tokens", length)


_QUEUE_GAUGES = ("vllm:num_requests_waiting", "llamacpp:requests_deferred", "sglang:num_queue_reqs", "tgi_queue_size")
_LIKE_A_QUEUE = re.compile(r"waiting|queued?_|_queue|deferred|pending")
_NO_COUNT = re.compile(r"second|time|duration|latency|_bucket|_sum|_count|_total|token")
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}\n]*\})? +(\S+)", re.MULTILINE)


async def read_metrics(server: ServerUnderProbe) -> Observations:
    """Whether ``/metrics`` can be read, and which gauge counts waiting requests."""
    reply = await server.get("/metrics")
    if reply.fault:
        return {Capability.METRICS: refused(reply)}
    return {Capability.METRICS: _find_queue(reply)}


def _find_queue(reply: ProbeReply) -> Observation:
    text = reply.body.decode("utf-8", "replace")
    if not re.search(r"^# TYPE ", text, re.MULTILINE):
        return no("not the text format of Prometheus")
    samples = dict(_SAMPLE.findall(text))
    known = [name for name in _QUEUE_GAUGES if name in samples]
    likely = [name for name in samples if _LIKE_A_QUEUE.search(name) and not _NO_COUNT.search(name)]
    for name in [*known, *likely]:
        return yes(f"waiting requests: {name} = {samples[name][:20]}"[:160], name[:100])
    return yes("no gauge of waiting requests among them") if samples else unknown("no figures in it")


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
