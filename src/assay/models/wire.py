"""Replies of the OpenAI protocol: what is read of them, and how forgivingly.

Everything not named here is skipped without being built. Values whose type varies between servers are checked by hand,
so that an odd token count never costs an answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from assay.types import FailureCause

if TYPE_CHECKING:
    from assay.types import EndpointKind


T = TypeVar("T")


class Said(msgspec.Struct, frozen=True):
    """What a good reply holds."""

    text: str | None
    finish_reason: str | None
    reasoning: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    model: str | None
    ttft: float | None = None
    """Seconds to the first token; None where the reply was not streamed, or is empty."""


class ReplyError(Exception):
    """The body of a 200 is no answer."""

    def __init__(self, cause: FailureCause, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.is_final = is_final
        """Whether the server would say the same if asked again."""


class _Message(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class Choice(msgspec.Struct):
    """One of the texts of a reply."""

    message: _Message | None = None
    text: Any = msgspec.UNSET
    finish_reason: Any = None
    error: Any = None


class Reply(msgspec.Struct):
    """The body of a 200."""

    choices: tuple[Choice, ...] | None = None
    usage: Any = None
    model: Any = None
    error: Any = None


_decoder = msgspec.json.Decoder(Reply)

# Finish reasons by which a server says that it broke off on its own account (SGLang and vLLM on shutdown, OpenRouter):
# the text is a torso, not the model's answer.
BROKEN_OFF = frozenset({"abort", "error"})


def read_reply(body: bytes, endpoint: EndpointKind) -> Said:
    """What the model said, from the body of a 200.

    Raises:
        ReplyError: the body is not JSON of the protocol, has no choices, or tells of an error.
    """
    return said_in(_decode(body), body, endpoint)


def said_in(reply: Reply, body: bytes, endpoint: EndpointKind) -> Said:
    """What the model said, from a body and what was decoded of it.

    Raises:
        ReplyError: it has no choices, or tells of an error.
    """
    if reply.error:
        raise ReplyError(FailureCause.ERROR_IN_REPLY, error_text(reply.error))
    if reply.choices is None:
        raise ReplyError(FailureCause.MALFORMED_REPLY, f"a reply without choices: {_excerpt(body)}")
    if not reply.choices:
        raise ReplyError(FailureCause.EMPTY_CHOICES, "the list of choices is empty")
    choice = reply.choices[0]
    finish_reason = finish_reason_of(choice)
    usage = reply.usage if isinstance(reply.usage, dict) else {}
    text, reasoning = text_of(choice, endpoint), reasoning_of(choice)
    return Said(
        text=text,
        finish_reason=finish_reason,
        reasoning=reasoning,
        prompt_tokens=token_count(usage.get("prompt_tokens")),
        completion_tokens=token_count(usage.get("completion_tokens"), nothing_counted=not text and not reasoning),
        model=str_or_none(reply.model),
    )


def decode_forgivingly(decoder: msgspec.json.Decoder[T], kind: type[T], body: bytes) -> T:
    """A reply's body, read as the standard library reads it where msgspec does not.

    That takes what lm-eval takes: NaN, lone surrogates, a byte order mark.

    Args:
        decoder: of `kind`.
        kind: what the body is to be.
        body: the reply's.

    Raises:
        ValueError, RecursionError: it is not of that kind.
    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.convert(mended(json.loads(body)), kind)


def _decode(body: bytes) -> Reply:
    try:
        return decode_forgivingly(_decoder, Reply, body)
    except (ValueError, RecursionError) as error:
        raise ReplyError(
            FailureCause.MALFORMED_REPLY, f"not a reply of the protocol ({error}): {_excerpt(body)}"
        ) from None


def mended(value: Any) -> Any:
    """The value with lone surrogates, which no UTF-8 file can hold, replaced."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, dict):
        return {key: mended(item) for key, item in value.items()}
    return value


def finish_reason_of(choice: Choice) -> str | None:
    """Why the text ended.

    Raises:
        ReplyError: it ended because something went wrong.
    """
    if choice.error:
        raise ReplyError(FailureCause.ERROR_IN_REPLY, error_text(choice.error))
    finish_reason = str_or_none(choice.finish_reason)
    if finish_reason in BROKEN_OFF:
        raise ReplyError(FailureCause.ERROR_IN_REPLY, f"the server broke off: finish_reason is {finish_reason!r}")
    return finish_reason


def text_of(choice: Choice, endpoint: EndpointKind) -> str | None:
    """The text; None where the server sent null.

    Raises:
        ReplyError: there is no place for it, or something else in it.
    """
    if endpoint == "chat":
        if choice.message is None:
            raise ReplyError(FailureCause.MALFORMED_REPLY, "the choice has no message")
        text = choice.message.content
    else:
        if choice.text is msgspec.UNSET:
            raise ReplyError(FailureCause.MALFORMED_REPLY, "the choice has no text")
        text = choice.text
    if text is None or isinstance(text, str):
        return text
    raise ReplyError(FailureCause.MALFORMED_REPLY, f"the content is of type {type(text).__name__}, not a string")


def reasoning_of(choice: Choice) -> str | None:
    """The reasoning, where the server separates it."""
    if choice.message is None:
        return None
    return str_or_none(choice.message.reasoning_content) or str_or_none(choice.message.reasoning)


def error_text(error: Any) -> str:
    """The message in an error object of any of the shapes that servers send."""
    while isinstance(error, dict):
        inner = next((error[name] for name in ("message", "detail", "error", "msg") if error.get(name)), None)
        if inner is None:
            break
        error = inner
    if isinstance(error, str):
        return error
    try:
        return json.dumps(error, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(type(error))


def error_body_text(body: bytes) -> str:
    """What the body of an error status says: its message if it is JSON, else its text."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    return error_text(value)


def _excerpt(body: bytes) -> str:
    # Far more than is shown: cutting it to size is left to whoever can blank secrets first.
    return body[:65536].decode("utf-8", "replace")


def str_or_none(value: Any) -> str | None:
    """The value, if it is a string."""
    return value if isinstance(value, str) else None


def token_count(value: Any, *, nothing_counted: bool = False) -> int | None:
    """A number of tokens. Zero is one only of nothing: servers that do not count say 0, or -1."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value > 0 or (value == 0 and nothing_counted) else None
