"""Text from models, servers and files, made safe to show in a terminal."""

from __future__ import annotations

import time


def printable(text: str, limit: int = 200) -> str:
    """`text` on one line, cut to `limit` characters, with unprintable characters escaped.

    Python counts as unprintable whatever could move the cursor, reorder a line or hide in it: control, format and
    bidirectional characters, surrogates, and all spaces but the plain one.
    """
    shown = "".join(map(_visible, text[:limit]))
    return shown if len(text) <= limit else f"{shown}…"


def visible(text: str) -> str:
    """`text` with unprintable characters escaped as in :func:`printable`, except line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(character if character in "\n\t" else _visible(character) for character in text)


def clock(seconds: float, pattern: str, *, utc: bool = False) -> str:
    """A Unix time formatted by ``strftime``, in local time unless `utc`. Never raises on a time out of range."""
    try:
        return time.strftime(pattern, (time.gmtime if utc else time.localtime)(seconds))
    except (OverflowError, ValueError, OSError):
        return f"an impossible time ({seconds:g} s)"


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
