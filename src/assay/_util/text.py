"""Text from models, servers and files, made safe to show in a terminal."""

from __future__ import annotations

import time


def printable(text: str, limit: int = 200) -> str:
    """`text` in one line, cut to `limit` characters; what is not printable, such as control codes, is shown escaped.

    Python counts as not printable what could move the cursor, reorder a line or hide in it: control, format and
    bidirectional characters, surrogates, and spaces other than the plain one.
    """
    shown = "".join(map(_visible, text[:limit]))
    return shown if len(text) <= limit else f"{shown}…"


def visible(text: str) -> str:
    """`text` with its lines and tabs as they are; whatever else :func:`printable` escapes, this escapes, too."""
    if text.isprintable():
        return text
    return "".join(character if character in "\n\t" else _visible(character) for character in text)


def clock(seconds: float, pattern: str, *, utc: bool = False) -> str:
    """A Unix time as ``strftime`` writes it, local unless `utc`; a file may hold one that no calendar has."""
    try:
        return time.strftime(pattern, (time.gmtime if utc else time.localtime)(seconds))
    except (OverflowError, ValueError, OSError):
        return f"an impossible time ({seconds:g} s)"


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
