"""Helpers for servers that refuse requests: a short question to tell the cause, and what to do about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from assay.client.api_key import key_source
from assay.client.retry import Retryability

if TYPE_CHECKING:
    from assay.client.retry import Fault
    from assay.types import ModelSpec

SHORT_QUESTION = "What is 17 + 25? Answer with the number only."


def short_question(payload: bytes) -> bytes:
    """A request's body with its prompt replaced by a short question; all settings stay.

    Args:
        payload: the body, a JSON object with ``messages`` or ``prompt``.
    """
    body = json.loads(payload)
    if "messages" in body:
        body["messages"] = [{"role": "user", "content": SHORT_QUESTION}]
    else:
        body["prompt"] = SHORT_QUESTION
    return json.dumps(body).encode()


def refusal_words(who: str, fault: Fault, spec: ModelSpec) -> str:
    """A message that a server refuses every request, with the reason and what to do.

    Args:
        who: the server, as the subject of the sentence.
        fault: the refusal.
        spec: the model and how it is reached.
    """
    does = "refuses the key" if refuses_key(fault) else how_refused(fault)
    return f"{who} {does} ({fault.message}); {what_to_do(fault, spec)}"


def refuses_key(fault: Fault) -> bool:
    """Whether the server refuses the key."""
    return fault.status == 401


def how_refused(fault: Fault) -> str:
    """A predicate for a server that answers nothing, such as "refuses every request"."""
    if fault.retryability is not Retryability.NO:
        return "answers no request"
    return "gives every request a reply that is no answer" if fault.status == 200 else "refuses every request"


def what_to_do(fault: Fault, spec: ModelSpec) -> str:
    """What to do about a refusal, as a clause.

    Args:
        fault: the refusal.
        spec: how the server is asked.
    """
    if fault.retryability is not Retryability.NO:
        return "it may later: ask again, or see to the server"
    match fault.status:
        case 401 | 407:
            return f"check the key: it is read from {key_source(spec)}"
        case 402:
            return f"see to the account of the key, which is read from {key_source(spec)}"
        case 403:
            return f"see what the key may do, which is read from {key_source(spec)}, and check the model's name"
        case 301 | 302 | 303 | 307 | 308:
            return "change the base URL"
        case 404 | 410:
            return f"check the address and the model's name, {spec.model!r}"
        case 400 | 413 | 422:
            return "asking again cannot help: change the setting that it refuses, or the server"
        case 200:
            return "asking again cannot help: is this the address of a model?"
        case _:
            return "asking again cannot help: check the address, the key and the model's name"
