"""Shares that somebody wrote in per cent."""

from __future__ import annotations

import re

_PER_CENT = re.compile(r"\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*%\s*")


def share_instead(text: str) -> str:
    """What to write in place of a number in per cent, as ``write 0.5 for 50 %``; empty if `text` is none."""
    found = _PER_CENT.fullmatch(text)
    return "" if found is None else f"write {float(found[1]) / 100:.10g} for {float(found[1]):.10g} %"
