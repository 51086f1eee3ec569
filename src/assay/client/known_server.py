"""Detects that a server has changed between the start of a run and its resumption.

An interrupted run keeps its answers. If another model answered the rest under the same name, the scores would mix two
models.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.api_key import read_api_key
from assay.client.preflight import AGREEMENT_PROMPTS
from assay.client.probe.server import ServerUnderProbe, text_of
from assay.client.server_info import ServedModel, answers_to, served_as
from assay.client.urls import server_root
from assay.errors import ServerChangedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.client.preflight import Preflight
    from assay.types import ModelSpec

_SECONDS = 10.0
"""Time limit for the answers to the short prompts."""


class KnownServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server says and answers, for a later comparison."""

    served: ServedModel | None = None
    """The server's entry for the run's model."""
    answers: tuple[str | None, ...] = ()
    """Answers to the short prompts, None where there was none; empty if they were not asked."""


async def known_servers(spec: ModelSpec, preflight: Preflight, *, ask: bool) -> dict[str, KnownServer]:
    """What is known of each server that is there, by address.

    Args:
        spec: the run's model.
        preflight: what the servers said of themselves.
        ask: also ask the short prompts.
    """
    present = [url for url in spec.base_urls if server_root(url) in preflight.servers]
    parsed = await asyncio.gather(*(_answers(spec, url) for url in present)) if ask else [()] * len(present)
    return {
        server_root(url): KnownServer(
            served=served_as(preflight.servers[server_root(url)], spec.model), answers=answers
        )
        for url, answers in zip(present, parsed, strict=True)
    }


async def _answers(spec: ModelSpec, base_url: str) -> tuple[str | None, ...]:
    """A server's answers to the short prompts, with the key blanked; None where there is no answer."""
    one = msgspec.structs.replace(spec, base_url=base_url, replicas=())
    async with ServerUnderProbe(one, api_key=read_api_key(spec), seconds=_SECONDS) as server:
        replies = await asyncio.gather(
            *(server.ask(spec.endpoint, prompt, seed=spec.seed) for prompt in AGREEMENT_PROMPTS)
        )
        return tuple(None if reply.parsed is None else server.clean(text_of(reply.parsed)) for reply in replies)


def changes_of_servers(then: dict[str, KnownServer], now: dict[str, KnownServer], model: str) -> list[str]:
    """What has changed at the servers since the run began, a line each.

    Args:
        then: by address, when the run began.
        now: by address.
        model: the name that the run asks for.

    Raises:
        ServerChangedError: another model is served at an address under the same name.
    """
    lines: list[str] = []
    for address, server in now.items():
        before = then.get(address)
        if before is None:
            continue
        _refuse_other_model(address, before.served, server.served, model)
        lines += (f"{address} {change}" for change in _changes(before, server))
    return lines


def _refuse_other_model(address: str, then: ServedModel | None, now: ServedModel | None, model: str) -> None:
    if then is None or now is None:
        return
    for what, old, new in (
        ("as", *(None if answers_to(one, model) else one.id for one in (then, now))),
        ("from", then.root, now.root),
        ("with parameters", then.parameters, now.parameters),
        ("of bytes", then.bytes, now.bytes),
    ):
        if None not in (old, new) and old != new:
            raise ServerChangedError(
                f"{address} serves another model as {model!r} than when this run began ({what} {new}, then {old}): its "
                "answers would be mixed with the other's; start anew with --fresh"
            )


def _changes(then: KnownServer, now: KnownServer) -> Iterator[str]:
    if then.served is not None and now.served is not None:
        for what, old, new in (
            ("has a context length of", then.served.max_model_len, now.served.max_model_len),
            ("names as the model's owner", then.served.owned_by, now.served.owned_by),
        ):
            if None not in (old, new) and old != new:
                yield f"{what} {new}, and {old} when this run began: answers may differ; --fresh starts anew"
    pairs = [(old, new) for old, new in zip(then.answers, now.answers, strict=False) if None not in (old, new)]
    if differing := sum(old != new for old, new in pairs):
        yield (
            f"answered {differing} of {len(pairs)} short prompts at temperature 0 unlike when this run began: batching "
            "in low precision can do that, another model, quantisation or chat template does; --fresh starts anew"
        )


def decoded(recorded: dict[str, Any]) -> dict[str, KnownServer]:
    """Decode the servers recorded in a journal; empty if the record is not valid."""
    try:
        return msgspec.convert(recorded, dict[str, KnownServer])
    except msgspec.ValidationError:
        return {}
