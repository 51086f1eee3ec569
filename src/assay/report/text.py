"""Text from models, servers and files, made safe to show in a terminal."""

from __future__ import annotations

import unicodedata

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that can move the cursor, reorder text or hide it: control, format, surrogates and the like."""


def printable(text: str, limit: int = 200) -> str:
    """`text` in one line, control and bidirectional characters shown as escapes, cut to `limit` characters."""
    shown = "".join(_visible(character) for character in text[: limit + 1])
    return shown if len(text) <= limit else f"{shown[:limit]}…"


def _visible(character: str) -> str:
    if unicodedata.category(character) in _HIDDEN:
        return (
            character.encode("unicode_escape").decode("ascii")
            if ord(character) < 0xD800 or ord(character) > 0xDFFF
            else f"\\u{ord(character):04x}"
        )
    return character
