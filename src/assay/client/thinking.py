"""Separates reasoning from the answer's text, as lm-eval's ``think_end_token`` does."""

from __future__ import annotations

from typing import NamedTuple

USUAL_END = "</think>"
"""What most models end their reasoning with."""


class Parted(NamedTuple):
    """An answer's text and its reasoning."""

    text: str | None
    reasoning: str | None


def without_thinking(text: str | None, reasoning: str | None, end: str | None) -> Parted:
    """The text after the last `end`, without leading white space; and the reasoning before it.

    lm-eval drops that white space also where there is no `end` in the text. Of a text that breaks off while the model
    still thinks, all is left: so it is scored there.

    Args:
        text: the answer's text.
        reasoning: reasoning that the server has separated itself.
        end: the token that ends reasoning; None changes nothing.
    """
    if text is None or not end:
        return Parted(text, reasoning)
    thought, found, rest = text.rpartition(end)
    stripped = f"{reasoning or ''}{thought}{found}"
    return Parted(rest.lstrip(), stripped or None)
