"""Reads a message's ``content`` that is a list of parts, some of which may be the model's reasoning.

Mistral sends parts for reasoning models, and gateways for Anthropic's and Google's models.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_REASONING = frozenset({"thinking", "reasoning", "reasoning_text", "reasoning.text", "summary_text"})
_SAYS_NOTHING = frozenset(
    {"tool_use", "server_tool_use", "tool_call", "function_call", "reference", "refusal", "redacted_thinking"}
)
"""Parts without text of the answer, like ``tool_calls`` and ``refusal`` beside a null ``content``."""
_PLACES = ("text", "thinking", "reasoning", "summary", "content", "parts", "value")
"""Fields that hold a part's text, or its own parts."""
_DEEPEST = 4
_SHOWN = 160


class Content(NamedTuple):
    """Text and reasoning of a content."""

    text: str | None
    """None if there is none, as in a null content."""
    reasoning: str | None


class UnreadableContentError(ValueError):
    """The content is neither null nor text nor known parts; the message quotes it."""


def read_content(content: Any) -> Content:
    """The text and the reasoning of a content, joined from its parts.

    Raises:
        UnreadableContentError: a part is of an unknown shape, so that some of the answer might be lost.
    """
    try:
        found = list(_texts(content, is_reasoning=False, depth=0))
    except ValueError:
        raise UnreadableContentError(f"content of a shape that cannot be read: {_quoted(content)}") from None
    answer = [text for text, is_reasoning in found if not is_reasoning]
    thoughts = [text for text, is_reasoning in found if is_reasoning]
    return Content("".join(answer) if answer else None, "".join(thoughts) or None)


def _texts(part: Any, *, is_reasoning: bool, depth: int) -> Iterator[tuple[str, bool]]:
    if isinstance(part, str):
        yield part, is_reasoning
    elif isinstance(part, list) and depth < _DEEPEST:
        for one in part:
            yield from _texts(one, is_reasoning=is_reasoning, depth=depth + 1)
    elif isinstance(part, dict) and depth < _DEEPEST:
        kind = str(part.get("type"))
        place = next((name for name in _PLACES if name in part), None)
        if kind in _SAYS_NOTHING:
            return
        if place is None:
            raise ValueError
        # "thought" is Google's mark.
        is_thought = kind in _REASONING or place in ("thinking", "reasoning") or part.get("thought") is True
        yield from _texts(part[place], is_reasoning=is_reasoning or is_thought, depth=depth + 1)
    elif part is not None:
        raise ValueError


def _quoted(content: Any) -> str:
    try:
        return json.dumps(content, ensure_ascii=False)[:_SHOWN]
    except (TypeError, ValueError, RecursionError):
        return f"{type(content).__name__}"
