"""Asks a server whether it is up and which models it serves."""

from __future__ import annotations

import asyncio
import difflib
import json
import time
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.replies import error_body_text
from assay.client.retry import DOWN_STATUSES, NetworkError, Retryability
from assay.errors import ModelNotServedError, ServerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.client.endpoint import Endpoint

_TIMEOUT = 30.0
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_NAMES_SHOWN = 5


class ServedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of ``/v1/models``."""

    id: str
    max_model_len: int | None = None
    """Context length in tokens, where the server tells it."""
    owned_by: str | None = None
    """Which server it is, in practice: ``vllm``, ``sglang``, ``llamacpp``, …"""
    aliases: tuple[str, ...] = ()
    root: str | None = None
    """Where the server has the model from: a path or a repository."""
    parameters: int | None = None
    bytes: int | None = None
    """Size of its weights, in which quantisations differ."""


class ServerInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reachable server and the models that it lists."""

    url: str
    models: tuple[ServedModel, ...] = ()
    """Empty if the server does not list its models."""


async def server_info(
    server: Endpoint,
    *,
    wait: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ServerInfo:
    """Ask a server which models it serves.

    If the server does not list its models, the list is empty.

    Args:
        server: open.
        wait: seconds to wait for a server that does not answer yet, or answers 503 because it is loading.
        clock: a monotonic clock in seconds.
        sleep: waits for so many seconds of that clock.

    Raises:
        ServerUnreachableError: nothing answers, or the server is not ready.
    """
    deadline = clock() + wait
    pause = _FIRST_PAUSE
    while True:
        try:
            return await _ask_once(server)
        except ServerUnreachableError:
            left = deadline - clock()
            if left <= 0:
                raise
        await sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _ask_once(server: Endpoint) -> ServerInfo:
    # llama.cpp lists its model while it still loads it; only /health tells.
    for path in ("/health", "/v1/models"):
        status, body = await _get(server, path)
        if status in DOWN_STATUSES:
            said = f"HTTP {status}: {server.redact(error_body_text(body))}"
            through = f", through the proxy {server.open_proxy}," if server.open_proxy else ""
            raise ServerUnreachableError(f"the server at {server.address}{through} is not ready ({said})")
    return ServerInfo(url=server.address, models=_listed(body) if status == 200 else ())


async def _get(server: Endpoint, path: str) -> tuple[int, bytes]:
    try:
        return await server.get(path, timeout=_TIMEOUT)
    except NetworkError as error:
        fault = error.fault
        if fault.retryability is Retryability.YES:
            # Connected, but no complete reply: the server is up, but busy or odd.
            return 0, b""
        if fault.retryability is Retryability.NO:
            raise ServerUnreachableError(f"{server.address}: {server.redact(fault.message)}") from None
        if fault.is_at_proxy:
            raise ServerUnreachableError(
                f"{server.address} cannot be asked ({server.redact(fault.message)}); is the proxy running? A server "
                "that needs none is named in NO_PROXY"
            ) from None
        raise ServerUnreachableError(
            f"nothing answers at {server.address} ({server.redact(fault.message)}); is the server running?"
        ) from None


def _listed(body: bytes) -> tuple[ServedModel, ...]:
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return ()
    entries = reply.get("data") if isinstance(reply, dict) else reply
    if not isinstance(entries, list):
        return ()
    return tuple(_served(entry) for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))


def _served(entry: dict[str, Any]) -> ServedModel:
    told = entry.get("meta")
    meta = told if isinstance(told, dict) else {}
    length = entry.get("max_model_len") or meta.get("n_ctx")
    owner, aliases, root = entry.get("owned_by"), entry.get("aliases"), entry.get("root")
    parameters, size = meta.get("n_params"), meta.get("size")
    return ServedModel(
        id=entry["id"],
        max_model_len=length if isinstance(length, int) else None,
        owned_by=owner if isinstance(owner, str) else None,
        aliases=tuple(alias for alias in aliases if isinstance(alias, str)) if isinstance(aliases, list) else (),
        root=root if isinstance(root, str) else None,
        parameters=parameters if isinstance(parameters, int) else None,
        bytes=size if isinstance(size, int) else None,
    )


def check_model_served(info: ServerInfo, model: str) -> None:
    """Make sure that the server lists ``model``, if it lists any.

    Raises:
        ModelNotServedError: it does not; the message names the models that it serves, closest matches first.
    """
    if not info.models or served_as(info, model) is not None:
        return
    names = [served.id for served in info.models]
    near = difflib.get_close_matches(model, names, n=_NAMES_SHOWN, cutoff=0.5)
    shown = (near + [name for name in names if name not in near])[:_NAMES_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    raise ModelNotServedError(f"{info.url} does not serve {model!r}; it serves {', '.join(map(repr, shown))}{more}")


def served_as(info: ServerInfo, model: str) -> ServedModel | None:
    """The server's entry for `model`; None if there is none."""
    named = next((served for served in info.models if answers_to(served, model)), None)
    if named is None and len(info.models) == 1 and info.models[0].owned_by == "llamacpp":
        return info.models[0]  # llama.cpp with one model takes any name for it.
    return named


def answers_to(served: ServedModel, model: str) -> bool:
    """Whether `model` is a name of this entry."""
    return model in (served.id, bare_name(served.id), *served.aliases)


def bare_name(model: str) -> str:
    """A model's name without transformers' revision suffix and Ollama's ``:latest`` tag."""
    return model.partition("@")[0].removesuffix(":latest")
