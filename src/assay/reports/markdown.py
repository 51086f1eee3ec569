"""Writes text as Markdown, and escapes whatever Markdown or HTML would interpret."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from assay._util.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"[\\`*\[\]<>#|~&@]|(?<!\w)_|_(?!\w)")

_CELL = 600
"""Characters shown of a table's cell."""


def escaped(text: str, limit: int = 200) -> str:
    """`text` in one line, with everything escaped that Markdown or HTML would interpret, mentions of users included."""
    shown = _SPECIAL.sub(lambda found: f"&#{ord(found.group()):d};", printable(text, limit))
    return shown.replace("://", "&#58;//")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table; its cells are escaped."""
    lines = [f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
    return lines + [f"| {' | '.join(escaped(cell, _CELL) for cell in row)} |" for row in rows]
