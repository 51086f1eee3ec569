"""Reasoning in an answer's text, taken apart from what it comes to, as by lm-eval's ``think_end_token``."""

from __future__ import annotations

from typing import NamedTuple

USUAL_END = "</think>"
"""What most models end their reasoning with."""


class Parted(NamedTuple):
    """An answer's text and its reasoning."""

    text: str | None
    reasoning: str | None


def without_thinking(text: str | None, reasoning: str | None, end: str | None) -> Parted:
    """The answer alone: what follows the last `end`, without white space before it.

    lm-eval drops that white space also where there is no `end` in the text. Of a text that breaks off while the model
    still thinks, all is left: so it is scored there.

    Args:
        text: the answer's.
        reasoning: what the server has taken apart itself.
        end: what reasoning ends with; None leaves all as it is.
    """
    if text is None or not end:
        return Parted(text, reasoning)
    thought, found, rest = text.rpartition(end)
    stripped = f"{reasoning or ''}{thought}{found}"
    return Parted(rest.lstrip(), stripped or None)
