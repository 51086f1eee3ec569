"""JSON encoding and decoding that also takes lone surrogates, NaN and infinities."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import msgspec


def as_json(value: Any) -> bytes:
    """Encode structs and plain data as JSON; NaN and infinities become null.

    A model may write lone surrogates, which UTF-8 cannot represent. They are escaped.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(_plain(value), separators=(",", ":")).encode("ascii")


def json_line(value: Any) -> str:
    """:func:`as_json` as a string on one line, for standard output."""
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
    """Decode JSON to plain data, including what only the standard library accepts: NaN, infinities, lone surrogates."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text if isinstance(text, str) else bytes(text))
