"""Finds the request changes that a server needs: it refuses a field by name, and answers without it.

Nothing is guessed. A change is kept only if the same question is answered with it and was refused, by the field's name,
without it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from assay.client.api_key import read_api_key
from assay.client.openai import OpenAIModel
from assay.client.refusals import short_question
from assay.client.replies import read_reply
from assay.client.retry import Fault, is_bad_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.types import ModelSpec

_TOKENS = 16
"""Most tokens to ask for; some servers accept no fewer."""


class Adaptation(NamedTuple):
    """A model's specification, adapted to its server."""

    model: ModelSpec
    remarks: tuple[str, ...] = ()
    """The changes and their reasons, a line each."""


class _Change(NamedTuple):
    """A possible change for a field that is refused."""

    field: str
    option: str
    change: Callable[[ModelSpec], dict[str, Any]]


def _dropped(field: str) -> _Change:
    return _Change(field, f"--drop-field {field}", lambda spec: {"drop_fields": (*spec.drop_fields, field)})


_REFUSED = re.compile(
    r"unsupported|not supported?|unknown|unrecogni[sz]ed|unexpected|not (?:allowed|permitted|available)|no such|"
    r"only the default|max_completion_tokens",
    re.IGNORECASE,
)
"""Words in servers' messages that a field, or any value of it but their own, is not accepted."""
_RENAMED = {"max_tokens": "max_completion_tokens"}
_CHANGES = (
    _Change(
        "max_tokens",
        "--rename-field max_tokens=max_completion_tokens",
        lambda spec: {"rename_fields": {**spec.rename_fields, **_RENAMED}},
    ),
    _dropped("seed"),
    _dropped("stop"),
    _Change(
        "temperature",
        "--extra-body '{\"temperature\": 1}'",
        lambda spec: {"extra_body": {**spec.extra_body, "temperature": 1}},
    ),
)


async def adapted(spec: ModelSpec, payload: bytes) -> Adaptation:
    """The specification with the changes that the model's first server needs.

    Args:
        spec: the model; changed only if its dialect is ``auto``.
        payload: a body as the run will send it.
    """
    if spec.dialect != "auto":
        return Adaptation(spec)
    question = _brief(short_question(payload))
    changed = spec
    remarks: list[str] = []
    while (fault := await _refusal(changed, question)) is not None:
        change = next((each for each in _CHANGES if _is_refused(each.field, fault.message)), None)
        if change is None:
            return Adaptation(spec)  # an unknown problem: the run will report it
        after = msgspec.structs.replace(changed, **change.change(changed))
        if after == changed:
            return Adaptation(spec)
        changed = after
        remarks.append(f"the server refuses '{change.field}' ({fault.message}): it is asked with {change.option}")
    return Adaptation(changed, tuple(remarks))


async def _refusal(spec: ModelSpec, question: bytes) -> Fault | None:
    """The fault if the server calls the question itself bad; None if it answers, or fails in another way."""
    one = msgspec.structs.replace(spec, replicas=())
    async with OpenAIModel(one, api_key=read_api_key(spec), is_probe=True) as model:
        reply = await model.endpoints[0].attempt(question, lambda body: read_reply(body, spec.endpoint))
    return reply if isinstance(reply, Fault) and is_bad_request(reply) else None


def _brief(question: bytes) -> bytes:
    """The question, limited to a short answer."""
    body = json.loads(question)
    return json.dumps({name: _TOKENS if name == "max_tokens" else value for name, value in body.items()}).encode()


def _is_refused(field: str, message: str) -> bool:
    """Whether the message refuses the field itself, not only a value that is too large."""
    is_named = re.search(rf"(?<![A-Za-z0-9_]){field}(?![A-Za-z0-9_])", message) is not None
    return is_named and _REFUSED.search(message) is not None
