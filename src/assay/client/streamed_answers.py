"""Reads a streamed answer (server-sent events) while it arrives.

It is as lenient as for whole replies: a stream without ``[DONE]`` is complete if it has a finish reason, and a server
that ignores ``stream`` may send a whole reply.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.replies import (
    ParsedReply,
    ReplyError,
    broken_off,
    content_in,
    error_in_reply,
    mended,
    read_finish_reason,
    read_reply,
    reasoning_tokens,
    says_error,
    str_or_none,
    token_count,
    undecodable,
)
from assay.client.server_sent_events import Event, EventSplitter, is_done, without_mark
from assay.client.transport import LARGEST_REPLY
from assay.types import FailureCause

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.types import EndpointKind


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    index: Any = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    text: Any = None
    finish_reason: Any = None
    error: Any = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    model: Any = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)


class StreamReader:
    """Reads one reply.

    Args:
        endpoint: the endpoint that sends it.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, endpoint: EndpointKind, clock: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._size = 0
        self._splitter = EventSplitter()
        self._whole: list[bytes] | None = None
        """The body, if it is not a stream."""
        self._has_begun = False
        self._error: ReplyError | None = None
        self._done = False

        self._last = b""
        """The data of the last event."""
        self._first_token: float | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._has_content = False
        self._has_deltas = False
        self._repeats = False
        """Whether each message repeats the text of those before it."""
        self._has_tool_calls = False
        self._has_choice = False
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] = {}
        self._model: str | None = None

    def is_done(self) -> bool:
        """Whether the last event has come."""
        return self._done

    @property
    def is_complete(self) -> bool:
        """Whether the answer is complete, even if the connection breaks now."""
        return self._error is None and (self._done or self._finish_reason is not None)

    def feed(self, part: bytes) -> bool:
        """Read the next bytes. Returns whether to go on reading."""
        if not self._has_begun:
            part = without_mark(part)
            if not part:
                return True
            self._has_begun = True
            if part[:1] in b"{[<":
                self._whole = []
        self._size += len(part)
        if self._whole is not None:
            self._whole.append(part)
            return self._is_within_limits()
        for event in self._splitter.feed(part):
            self._take_event(event)
        return self._is_within_limits() and self._error is None

    def read(self, started: float) -> ParsedReply:
        """The whole answer, once nothing more comes.

        Args:
            started: when the request was sent, on the reader's clock.

        Raises:
            ReplyError: the stream broke off, is not a stream, or holds an error.
        """
        if self._error is None and self._whole is not None:
            return read_reply(b"".join(self._whole), self._endpoint)
        for event in self._splitter.end():
            self._take_event(event)
        if self._error is not None:
            raise self._error
        if not self.is_complete:
            raise broken_off(b"" if self._has_choice else self._last)
        if not self._has_choice:
            raise ReplyError(FailureCause.EMPTY_CHOICES, "the stream held no choice")
        text = mended("".join(self._text))
        reasoning = mended("".join(self._reasoning))
        return ParsedReply(
            # An unstreamed answer of reasoning or tool calls alone has null for its content.
            text=text if text or (self._has_content and not reasoning and not self._has_tool_calls) else None,
            finish_reason=self._finish_reason,
            reasoning=reasoning or None,
            prompt_tokens=token_count(self._usage.get("prompt_tokens")),
            completion_tokens=token_count(
                self._usage.get("completion_tokens"), nothing_counted=not text and not reasoning
            ),
            model=self._model,
            reasoning_tokens=reasoning_tokens(self._usage),
            ttft=None if self._first_token is None else self._first_token - started,
        )

    def _is_within_limits(self) -> bool:
        if self._size <= LARGEST_REPLY:
            return True
        self._fail(FailureCause.MALFORMED_REPLY, f"the reply is larger than {LARGEST_REPLY // 2**20} MiB")
        return False

    def _fail(self, cause: FailureCause, message: str) -> None:
        self._error = self._error or ReplyError(cause, message)

    def _take_event(self, event: Event) -> None:
        if self._done or self._error is not None:
            return
        if is_done(event.data):
            self._done = True
            return
        if event.name == "error":
            self._error = error_in_reply(_value(event.data))
            return
        try:
            decoded = _decoded(event.data)
        except ValueError as error:
            if self._finish_reason is not None:  # the answer is complete: ignore the rest
                self._done = True
                return
            self._error = undecodable(error, event.data, "an event")
            return
        if says_error(decoded.error):
            self._error = error_in_reply(decoded.error)
            return
        self._last = event.data
        if isinstance(decoded.usage, dict):
            self._usage = decoded.usage
        self._model = self._model or str_or_none(decoded.model) or None
        for choice in decoded.choices or ():
            if choice.index in (0, "0", None):
                self._take_choice(choice)

    def _begin_again_with(self, message: str) -> None:
        """Drop the text so far if a message repeats it: some servers send all of the text in every message."""
        so_far = "".join(self._text)
        self._repeats = message.startswith(so_far) and (self._repeats or 0 < len(so_far) < len(message))
        self._text = [] if self._repeats else [so_far]

    def _take_choice(self, choice: _Choice) -> None:
        if says_error(choice.error):
            self._error = error_in_reply(choice.error)
            return
        self._has_choice = True
        # Some send a message in every event, or one whole message; some repeat all of it after the last delta.
        self._has_deltas = self._has_deltas or _says_something(choice.delta)
        delta = (None if self._has_deltas else choice.message) or choice.delta or _Delta()
        is_chat = self._endpoint == "chat" and (choice.delta or choice.message) is not None
        try:
            content, reasoning = content_in(
                delta.content if is_chat else choice.text, delta.reasoning_content, delta.reasoning
            )
            finish_reason = read_finish_reason(choice.finish_reason)
        except ReplyError as error:
            self._error = self._error or error
            return
        self._has_content = self._has_content or content is not None
        self._has_tool_calls = self._has_tool_calls or bool(delta.tool_calls)
        if delta is choice.message and content is not None:
            self._begin_again_with(content)
        if content or reasoning or delta.tool_calls:
            self._first_token = self._clock() if self._first_token is None else self._first_token
            self._text.append(content or "")
            self._reasoning.append(reasoning or "")
        self._finish_reason = finish_reason or self._finish_reason


def _says_something(delta: _Delta | None) -> bool:
    """Whether a delta has content: beside a whole message some servers send an empty one, or the role alone."""
    return delta is not None and bool(delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls)


def _decoded(data: bytes) -> _Event:
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    # msgspec refuses NaN and lone surrogates, whose other half may be in the next event.
    try:
        return msgspec.convert(json.loads(data), _Event)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _value(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")
