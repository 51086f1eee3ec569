"""Generation settings: read from text as lm-eval reads its ``--gen_kwargs``, and checked."""

from __future__ import annotations

import json
from typing import Any

from assay.errors import SpecificationError


def parse_gen_kwargs(text: str) -> dict[str, Any]:
    """Read ``key=value,key=value`` or a JSON object; values that look like numbers, booleans or lists become such.

    Raises:
        SpecificationError: the text is neither.
    """
    from lm_eval._cli.utils import key_val_to_dict, try_parse_json

    try:
        parsed = try_parse_json(text) if text.strip() else {}
        settings: dict[str, Any] = parsed if isinstance(parsed, dict) else key_val_to_dict(str(parsed))
    except ValueError as error:
        raise SpecificationError(f"gen_kwargs '{text}' cannot be read: {error}") from error
    return settings


def generation_fault(settings: Any) -> str | None:
    """What is wrong with generation settings, in words; None if nothing is."""
    if not isinstance(settings, dict):
        return f"{settings!r} are no settings by name"
    until = settings.get("until")
    if not (until is None or isinstance(until, str) or _are_texts(until)):
        return f"until is {until!r}; it must be a text or a list of texts at which an answer stops"
    for name in ("max_gen_toks", "max_tokens"):
        value = settings.get(name, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            return f"{name} is {value!r}; it must be a whole number of at least 1"
    for name in ("temperature", "top_p"):
        value = settings.get(name, 0)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return f"{name} is {value!r}; it must be a number"
    try:
        json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"they cannot be sent: {error}"
    return None


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
