"""Splits server-sent events while they arrive, in chunks cut anywhere. Lines may end with LF, CR or both."""

from __future__ import annotations

import json
from typing import NamedTuple

_DONE = b"[DONE]"
"""How the data of the last event begins."""
_STARTS = (b"data:", b"event:", b":", b"id:", b"retry:", b"error:")
_SIGNS_OF_LIFE = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
"""Names of keep-alive events, which may also be the data of an event without a name."""
_NOTHING = frozenset({b"", b"null", *(sign.encode() for sign in _SIGNS_OF_LIFE)})
_BLANK = b"\xef\xbb\xbf \t\r\n"
"""White space and a byte order mark, which may precede a body."""


class Event(NamedTuple):
    """One event that has data."""

    name: str
    """Empty where the server gives none."""
    data: bytes


class EventSplitter:
    """Splits one stream."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """The chunks of a line that has not ended."""
        self._after_return = False
        """Whether a line feed next would belong to the end of the previous line."""
        self._name = ""
        self._data: list[bytes] = []
        self._ready: list[Event] = []

    def feed(self, part: bytes) -> list[Event]:
        """The events that end in this chunk."""
        if self._after_return or b"\r" in part:
            part = self._with_line_feeds(part)
        *ended, rest = part.split(b"\n")
        for piece in ended:
            self._take_line(b"".join((*self._line, piece)))
            self._line.clear()
        if rest:
            self._line.append(rest)
        return self._taken()

    def end(self) -> list[Event]:
        """The last event, if only its empty line is missing; nothing if the stream broke off within it."""
        self._take_line(b"".join(self._line))
        self._line.clear()
        if self._is_whole():
            self._end_event()
        return self._taken()

    def _with_line_feeds(self, part: bytes) -> bytes:
        if self._after_return and part:
            part = part.removeprefix(b"\n")
            self._after_return = False
        self._after_return = self._after_return or part.endswith(b"\r")
        return part.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _taken(self) -> list[Event]:
        events, self._ready = self._ready, []
        return events

    def _take_line(self, line: bytes) -> None:
        if not line:
            self._end_event()
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            if len(self._data) == 1 and self._is_whole():  # some servers send no empty line between events
                self._end_event()
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"error":  # llama.cpp's, once
            self._name = "error"
            self._data.append(value)

    def _end_event(self) -> None:
        data = b"\n".join(self._data)
        if data.strip() not in _NOTHING and self._name not in _SIGNS_OF_LIFE:
            self._ready.append(Event(self._name, data))
        self._data.clear()
        self._name = ""

    def _is_whole(self) -> bool:
        data = b"\n".join(self._data).strip()
        try:
            json.loads(data)
        except (ValueError, RecursionError):
            return is_done(data)
        return True


def is_done(data: bytes) -> bool:
    """Whether this is the data of the last event."""
    return data.lstrip()[: len(_DONE)].upper() == _DONE


def without_mark(body: bytes) -> bytes:
    """A body without leading white space and byte order mark."""
    return body.lstrip(_BLANK)


def is_stream(body: bytes) -> bool:
    """Whether a body is a stream of events, whatever its ``Content-Type``."""
    return without_mark(body[:256]).startswith(_STARTS)
