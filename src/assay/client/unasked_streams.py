"""Turns a stream that nobody asked for into the whole reply that it should have been.

Some servers and gateways always stream. All choices, their log-probabilities and parts of content are joined, so that
the code for whole replies can read the result.
"""

from __future__ import annotations

import json
from typing import Any

from assay.client.replies import ReplyError, broken_off, says_error, undecodable
from assay.client.server_sent_events import EventSplitter, is_done, is_stream, without_mark
from assay.types import FailureCause

_JOINED = frozenset({"content", "text", "reasoning_content", "reasoning"})
_SAYING = ("content", "reasoning_content", "reasoning", "tool_calls")


def whole_reply(body: bytes) -> bytes:
    """The body of a 200, converted to a whole reply if it is a stream.

    Raises:
        ReplyError: the stream broke off, or is not of the protocol.
    """
    return body if body.startswith(b"{") or not is_stream(body) else _joined(body)


def _joined(body: bytes) -> bytes:
    splitter = EventSplitter()
    joined = _Joined()
    last = b""
    for event in (*splitter.feed(without_mark(body)), *splitter.end()):
        if is_done(event.data):
            joined.is_complete = True
            break
        try:
            value = _value(event.data)
        except ReplyError:
            if joined.is_complete:  # the answer is complete: ignore the rest
                break
            raise
        joined.take({"error": value.get("error") or value} if event.name == "error" else value)
        if says_error(joined.fields.get("error")):
            break
        last = event.data
    if not joined.is_complete:
        raise broken_off(b"" if joined.choices else last)
    return json.dumps({**joined.fields, "choices": list(joined.choices.values())}).encode()


class _Joined:
    """The reply so far."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.choices: dict[str, dict[str, Any]] = {}
        """By index."""
        self.is_complete = False
        self._with_deltas: set[str] = set()

    def take(self, event: dict[str, Any]) -> None:
        """Add an event."""
        choices = event.pop("choices", None) or []
        self.fields |= {name: field for name, field in event.items() if field}
        self.is_complete = self.is_complete or says_error(event.get("error"))
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise ReplyError(FailureCause.UNREADABLE_REPLY, f"the stream's choices are {choices!r}")
        for choice in choices:
            self._take_choice(choice)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        key = str(choice.get("index") or 0)
        delta = choice.pop("delta", None)
        if _says_something(delta):
            self._with_deltas.add(key)
        if key in self._with_deltas:
            choice.pop("message", None)  # It repeats them.
        if delta is not None and choice.get("message") is None:
            choice["message"] = delta
        if _repeats(choice.get("message"), self.choices.get(key, {}).get("message")):
            del self.choices[key]["message"]
        self.is_complete = self.is_complete or bool(choice.get("finish_reason"))
        self.choices[key] = _sum(self.choices.get(key), choice)


def _says_something(delta: Any) -> bool:
    """Whether a delta has content: beside a whole message some servers send an empty one, or the role alone."""
    return isinstance(delta, dict) and any(delta.get(name) for name in _SAYING)


def _repeats(message: Any, earlier: Any) -> bool:
    """Whether a message repeats the text before it."""
    text, so_far = (part.get("content") if isinstance(part, dict) else None for part in (message, earlier))
    return isinstance(text, str) and isinstance(so_far, str) and 0 < len(so_far) < len(text) and text.startswith(so_far)


def _sum(before: Any, after: Any, name: str = "") -> Any:
    """Merge two parts of the same value."""
    if before is None or after is None:
        return after if before is None else before
    if isinstance(before, str) and isinstance(after, str):
        return before + after if name in _JOINED else after
    if isinstance(before, list) or isinstance(after, list):
        return [*_listed(before), *_listed(after)]
    if isinstance(before, dict) and isinstance(after, dict):
        return {**before, **{key: _sum(before.get(key), value, key) for key, value in after.items()}}
    return after


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _value(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise undecodable(error, data, "an event") from None
    if not isinstance(value, dict):
        raise ReplyError(FailureCause.MALFORMED_REPLY, f"not an event of the protocol: {value!r}")
    return value
