"""Where an endpoint's API key comes from."""

from __future__ import annotations

import functools
import os
import stat
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from assay._util.paths import expand_home, why_unreadable
from assay.errors import SpecificationError
from assay.types import USUAL_KEY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.types import ModelSpec

NO_KEY = "EMPTY"
"""The customary key for servers that need none."""
KEY_ARGUMENT = "the argument api_key"
_LONGEST = 65536


_given: ContextVar[str | None] = ContextVar("api_key", default=None)


@contextmanager
def api_key_given(key: str) -> Iterator[None]:
    """Send `key` to every server in this block, whatever a variable or a file holds; "" for none."""
    token = _given.set(key)
    try:
        yield
    finally:
        _given.reset(token)


def read_api_key(spec: ModelSpec) -> str | None:
    """The key of `spec`: from its file if it names one, else from its environment variable; None if there is none.

    One that the caller gave (:func:`api_key_given`) comes before both.

    Raises:
        SpecificationError: the file cannot be read, is empty, or holds no key that could be sent; or a variable other
            than the usual one is named and not set.
    """
    if (given := _given.get()) is not None:
        return given
    if spec.api_key_file is None:
        key = os.environ.get(spec.api_key_env)
        if key is None and spec.api_key_env != USUAL_KEY_VARIABLE:
            raise SpecificationError(
                f"the environment variable {spec.api_key_env}, which is to hold the API key, is not set; "
                "set it, or leave it empty for a server that wants no key"
            )
        return key
    try:
        content = _content(spec.api_key_file)
    except (OSError, ValueError) as error:
        raise SpecificationError(f"cannot read the API key file {spec.api_key_file}: {why_unreadable(error)}") from None
    if len(content) > _LONGEST:
        raise SpecificationError(f"the API key file {spec.api_key_file} is larger than a key can be")
    if not content:
        raise SpecificationError(f"the API key file {spec.api_key_file} is empty")
    if any(byte not in range(0x20, 0x7F) for byte in content):
        raise SpecificationError(f"the API key file {spec.api_key_file} must hold the key alone, on one line")
    return content.decode("ascii")


def refuse_unsendable(key: str, source: str) -> None:
    """Refuse a key that cannot be sent in a header.

    Args:
        key: without white space around it.
        source: where it comes from, for the message.

    Raises:
        SpecificationError: it has control characters, or others than ASCII's.
    """
    if not (key.isprintable() and key.isascii()):
        raise SpecificationError(f"the API key from {source} holds characters that cannot be sent in a header")


def key_source(spec: ModelSpec) -> str:
    """Where the key of `spec` is read from, for messages."""
    if _given.get() is not None:
        return KEY_ARGUMENT
    if spec.api_key_file is not None:
        return f"the file {spec.api_key_file}"
    unset = "" if os.environ.get(spec.api_key_env) else " (not set)"
    return f"the environment variable {spec.api_key_env}{unset}"


def _content(name: str) -> bytes:
    path = expand_home(name)
    return _read_once(str(path)) if stat.S_ISFIFO(path.stat().st_mode) else _read(str(path))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(2 * _LONGEST).strip()


@functools.cache
def _read_once(pipe: str) -> bytes:
    """The content of a pipe, such as a shell's ``<(command)``, cached: a pipe can be read only once."""
    return _read(pipe)
