"""The user's own headers, given literally or by a variable or file that holds the secret."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from assay._util.paths import expand_home, why_unreadable
from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN = frozenset({"content-length", "transfer-encoding", "connection", "accept-encoding", "content-type"})
"""Headers that the HTTP client sets itself."""
_SECRET = re.compile(r"key|token|auth|secret|cookie|passw|sign", re.IGNORECASE)
_LONG = 16
"""Characters from which on a literal value may be a secret, whatever its header is called."""
_VARIABLE = re.compile(r"(?:([A-Za-z]+) +)?\$(?:(\w+)|\{(\w+)\})")
"""A variable, alone or after the scheme of an ``Authorization``: ``Bearer $TOKEN``."""
_DOUBLED = re.compile(r"([A-Za-z]+ +)?([$@])\2")
"""The beginning of a literal value that would otherwise name a variable or a file."""
_LONGEST = 65536
_BLANK = "***"


def parse_header(text: str) -> tuple[str, str]:
    """``NAME=VALUE``, or as curl has it ``NAME: VALUE``.

    Raises:
        SpecificationError: the text is neither.
    """
    found = re.fullmatch(r"\s*([^=:\s]+)\s*[=:]\s*(.*?)\s*", text, re.DOTALL)
    if found is None:
        raise SpecificationError(
            f"the header {_named(text)} cannot be read: write NAME=VALUE, NAME=$VARIABLE or NAME=@FILE"
        )
    return found[1], found[2]


def literal(value: str) -> str:
    """A value as it has to be written to be sent as it is: with its first ``$`` or ``@`` doubled where that counts."""
    if _is_reference(value) or _DOUBLED.match(value):
        return re.sub(r"[$@]", lambda found: found[0] * 2, value, count=1)
    return value


def header_values(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers with the values of their variables and files.

    Raises:
        SpecificationError: a variable is not set, a file cannot be read, or a name or value cannot be sent.
    """
    return {name: _value(name, text) for name, text in headers.items()}


def secrets_among(values: Mapping[str, str], headers: Mapping[str, str]) -> list[str]:
    """Values to keep secret: those from variables and files, of headers whose name suggests a secret, and long ones."""
    kept_apart = [
        name
        for name, text in headers.items()
        if _is_reference(text) or _SECRET.search(name) or (len(text) >= _LONG and name.lower() != "host")
    ]
    return [part for name in kept_apart for part in (values[name], values[name].partition(" ")[2]) if part]


def without_values(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers to be recorded: with the names of variables and files, without literal values."""
    return {name: text if _is_reference(text) else _BLANK for name, text in headers.items()}


def _is_reference(text: str) -> bool:
    return re.fullmatch(r"@[^@].*", text, re.DOTALL) is not None or _VARIABLE.fullmatch(text) is not None


def _value(name: str, text: str) -> str:
    if not _NAME.fullmatch(name):
        raise SpecificationError(f"'{name}' cannot be the name of a header")
    if name.lower() in _FORBIDDEN:
        raise SpecificationError(f"the header {name} is the client's own affair; leave it out")
    value = _read(name, text).strip()
    if not (value.isprintable() and value.isascii()):
        raise SpecificationError(f"the value of the header {name} holds characters that cannot be sent in a header")
    return value


def _read(name: str, text: str) -> str:
    if not _is_reference(text):
        return _DOUBLED.sub(r"\1\2", text, count=1) if _DOUBLED.match(text) else text
    if (found := _VARIABLE.fullmatch(text)) is not None:
        scheme, source = found[1], found[2] or found[3]
        value = os.environ.get(source)
        if value is None:
            raise SpecificationError(f"the environment variable {source}, for the header {name}, is not set")
        return f"{scheme} {value}" if scheme else value
    source = text[1:]
    try:
        with expand_home(source).open("rb") as file:
            return file.read(_LONGEST).decode("latin-1")
    except (OSError, ValueError) as error:
        raise SpecificationError(f"cannot read {source}, for the header {name}: {why_unreadable(error)}") from None


def _named(text: str) -> str:
    """The beginning of a text that may hold a secret."""
    return repr(re.split(r"[=:\s]", text, maxsplit=1)[0][:40])
