"""Data as JSON, whatever texts are in it."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import msgspec


def as_json(value: Any) -> bytes:
    """Structs and plain data as JSON; numbers that it has none for are null.

    A model may write lone surrogates, which UTF-8 cannot hold. Escaped, they are JSON all the same.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(_plain(value), separators=(",", ":")).encode("ascii")


def json_line(value: Any) -> str:
    """The same as text in one line, for standard output."""
    return as_json(value).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return _plain(plain(value))
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def plain(text: msgspec.Raw | bytes | str) -> Any:
    """JSON as plain data, also such that only the standard library takes: NaN, infinities, lone surrogates."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text if isinstance(text, str) else bytes(text))
