"""Conversations as the JSON text that lm-eval makes of them: escaped, quoted and hashed.

The text is sent (escaped to ASCII), written into the samples file (as a JSON string), and hashed. Most of a task's
prompts begin with the same examples; for that opening each of the three is done once.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_fast = msgspec.json.Encoder()
_standard = json.JSONEncoder(ensure_ascii=False)


def escaped(json_text: str) -> bytes:
    """JSON with everything escaped that ``json.dumps`` escapes by default: all that is not ASCII, and DEL."""
    return json_text.encode("ascii", "assay.json_escape").replace(b"\x7f", b"\\u007f")


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("assay.json_escape", _escape)


def conversation_json(turns: Sequence[Mapping[str, Any]]) -> str:
    """``json.dumps(turns, ensure_ascii=False)``, as lm-eval's chat client writes a conversation, but faster."""
    return f"[{', '.join(map(turn_json, turns))}]"


def turn_json(turn: Mapping[str, Any]) -> str:
    """The same for one turn."""
    try:
        return f"{{{', '.join([f'{_text_json(key)}: {_text_json(value)}' for key, value in turn.items()])}}}"
    except (UnicodeEncodeError, TypeError):  # lone surrogates, contents in parts
        return _standard.encode(turn)


def _text_json(text: str) -> str:
    if type(text) is not str:  # of texts alone msgspec and the standard library write the same
        raise TypeError
    return _fast.encode(text).decode()


def quoted(text: Any) -> bytes:
    """The JSON of a string, or of nested lists of strings."""
    try:
        return _fast.encode(text)
    except UnicodeEncodeError:
        # A lone surrogate in a model's text cannot be written as UTF-8; it stays visible as an escape.
        return _standard.encode(text).encode("utf-8", "backslashreplace")


class Opening:
    """The beginning that many conversations share."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def escaped(self) -> bytes:
        """As it is sent."""
        return escaped(self.text)

    @cached_property
    def quoted(self) -> bytes:
        """As a JSON string without its closing quote."""
        return quoted(self.text)[:-1]

    @cached_property
    def sha256(self) -> Any:
        """A hash object that has read this text; copy it before use."""
        return hashlib.sha256(self.text.encode("utf-8"))


NO_OPENING = Opening("")


class ChatPrompt(msgspec.Struct, frozen=True):
    """A conversation as JSON text; in place of lm-eval's ``JsonChatStr``."""

    text: str
    """What follows the opening."""
    opening: Opening = NO_OPENING

    @property
    def escaped(self) -> bytes:
        """The same JSON in ASCII, as it is sent."""
        return self.opening.escaped + escaped(self.text)

    @property
    def quoted(self) -> bytes:
        """The JSON text as a JSON string, as it stands in samples files."""
        return self.opening.quoted + quoted(self.text)[1:]

    def sha256(self) -> bytes:
        """The digest of the JSON text in UTF-8: lm-eval's ``prompt_hash``."""
        digest = self.opening.sha256.copy()
        digest.update(self.text.encode("utf-8"))
        sha256: bytes = digest.digest()
        return sha256

    def encode(self, encoding: str) -> bytes:
        """The JSON text's bytes; lm-eval hashes prompts through this."""
        return (self.opening.text + self.text).encode(encoding)
