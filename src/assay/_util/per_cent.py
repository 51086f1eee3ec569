"""Detects percentages where a share between 0 and 1 is expected."""

from __future__ import annotations

import re

_PER_CENT = re.compile(r"\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*%\s*")


def share_hint(text: str) -> str:
    """A hint such as ``write 0.5 for 50 %`` if `text` is a percentage; else an empty string."""
    found = _PER_CENT.fullmatch(text)
    return "" if found is None else f"write {float(found[1]) / 100:.10g} for {float(found[1]):.10g} %"
