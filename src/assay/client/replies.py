"""Parses replies of the OpenAI protocol, leniently.

Fields that are not declared here are skipped without being decoded. Fields whose type varies between servers are
checked by hand, so that an odd token count never costs an answer.
"""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from assay.client.content_parts import Content, UnreadableContentError, read_content
from assay.types import FailureCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.types import EndpointKind


T = TypeVar("T")

_NO_WORDS = re.compile(r"<(script|style)\b.*?</\1>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_PAGE_READ = 8192
_ERROR_STATUS = re.compile(r"[45][0-9]{2}")


class ParsedReply(msgspec.Struct, frozen=True):
    """The content of a good reply."""

    text: str | None
    finish_reason: str | None
    reasoning: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    model: str | None
    reasoning_tokens: int | None = None
    ttft: float | None = None
    """Seconds to the first token; None if the reply was not streamed or is empty."""


class ReplyError(Exception):
    """The body of a 200 is not an answer."""

    def __init__(self, cause: FailureCause, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.status = status
        """The HTTP status that the reply's error names, if any."""


class _Message(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None


class Choice(msgspec.Struct):
    """One of the texts of a reply."""

    index: Any = None
    message: _Message | None = None
    text: Any = msgspec.UNSET
    finish_reason: Any = None
    error: Any = None


class ReplyBody(msgspec.Struct):
    """The body of a 200."""

    choices: tuple[Choice, ...] | None = None
    usage: Any = None
    model: Any = None
    error: Any = None


_decoder = msgspec.json.Decoder(ReplyBody)

# Finish reasons of a server that stopped generating for its own reasons (SGLang and vLLM on shutdown, OpenRouter;
# DeepSeek, Z.ai): the text is incomplete.
_BROKEN_OFF = frozenset({"abort", "error", "insufficient_system_resource", "network_error"})
_TROUBLE = frozenset({"code", "detail", "error", "errors", "message", "msg", "status"})
"""Fields of a gateway's JSON error page."""
_MOST_TOKENS = 10**9
# What some call the protocol's "length": Mistral, and gateways to Anthropic and Google.
_LENGTH = frozenset({"model_length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "LENGTH"})


def read_reply(body: bytes, endpoint: EndpointKind) -> ParsedReply:
    """Parse the body of a 200.

    Raises:
        ReplyError: the body is not JSON of the protocol, has no choices, or holds an error.
    """
    return parsed_reply(_decode(body), body, endpoint)


def parsed_reply(reply: ReplyBody, body: bytes, endpoint: EndpointKind) -> ParsedReply:
    """Parse a decoded body.

    Args:
        reply: the decoded body.
        body: the body itself, for messages.
        endpoint: the endpoint that sent it.

    Raises:
        ReplyError: it has no choices, or holds an error.
    """
    if reply.error and says_error(reply.error):
        raise error_in_reply(reply.error)
    if reply.choices is None:
        raise ReplyError(
            FailureCause.UNREADABLE_REPLY if _is_of_another_protocol(body) else FailureCause.MALFORMED_REPLY,
            f"a reply without choices: {_excerpt(body)}",
        )
    if not reply.choices:
        raise ReplyError(FailureCause.EMPTY_CHOICES, "the list of choices is empty")
    choice = reply.choices[0] if len(reply.choices) == 1 else in_order(reply.choices)[0]
    finish_reason = finish_reason_of(choice)
    usage = reply.usage if isinstance(reply.usage, dict) else {}
    text, reasoning = content_of(choice, endpoint)
    return ParsedReply(
        text=text,
        finish_reason=finish_reason,
        reasoning=reasoning,
        prompt_tokens=token_count(usage.get("prompt_tokens")),
        completion_tokens=token_count(usage.get("completion_tokens"), nothing_counted=not text and not reasoning),
        model=str_or_none(reply.model),
        reasoning_tokens=reasoning_tokens(usage),
    )


def decode_forgivingly(decoder: msgspec.json.Decoder[T], kind: type[T], body: bytes) -> T:
    """Decode a reply's body, by the standard library if msgspec refuses it.

    The standard library accepts what lm-eval accepts: NaN, lone surrogates, a byte order mark.

    Args:
        decoder: decodes to `kind`.
        kind: the type to decode to.
        body: the reply's body.

    Raises:
        ValueError, RecursionError: it is not of that kind.
    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.convert(mended(json.loads(body)), kind)


def _decode(body: bytes) -> ReplyBody:
    if not body.strip():
        raise ReplyError(FailureCause.MALFORMED_REPLY, "the body of the reply is empty")
    try:
        return decode_forgivingly(_decoder, ReplyBody, body)
    except (ValueError, RecursionError) as error:
        raise undecodable(error, body, "a reply") from None


def undecodable(error: Exception, data: bytes, what: str) -> ReplyError:
    """The error for data that are not of the protocol.

    Args:
        error: what decoding raised.
        data: the data.
        what: what they should have been, with its article.
    """
    # Without "choices" it may be a gateway's page, or truncated: worth a retry.
    is_of_another_shape = isinstance(error, msgspec.ValidationError) and b'"choices"' in data
    return ReplyError(
        FailureCause.UNREADABLE_REPLY if is_of_another_shape else FailureCause.MALFORMED_REPLY,
        f"not {what} of the protocol ({error}): {_excerpt(data)}",
    )


def mended(value: Any) -> Any:
    """The value with its lone surrogates replaced, which UTF-8 cannot represent."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, dict):
        return {key: mended(item) for key, item in value.items()}
    return value


C = TypeVar("C", bound=Choice)


def in_order(choices: Sequence[C]) -> list[C]:
    """The choices sorted by index; a choice without one keeps its position."""
    places = {id(choice): place for place, choice in enumerate(choices)}
    return sorted(choices, key=lambda one: _index(one.index, otherwise=places[id(one)]))


def _index(value: Any, *, otherwise: int) -> int:
    is_digit = isinstance(value, str) and len(value) == 1 and "0" <= value <= "9"
    return int(value) if type(value) is int or is_digit else otherwise


def finish_reason_of(choice: Choice) -> str | None:
    """A choice's finish reason.

    Raises:
        ReplyError: the choice holds an error, or the server stopped for its own reasons.
    """
    if choice.error and says_error(choice.error):
        raise error_in_reply(choice.error)
    return read_finish_reason(choice.finish_reason)


def read_finish_reason(value: Any) -> str | None:
    """A finish reason, with other names of the protocol's ``length`` translated.

    Raises:
        ReplyError: the server stopped for its own reasons.
    """
    finish_reason = str_or_none(value) or None
    if finish_reason in _BROKEN_OFF:
        raise ReplyError(FailureCause.ERROR_IN_REPLY, f"the server broke off: finish_reason is {finish_reason!r}")
    return "length" if finish_reason in _LENGTH else finish_reason


def content_of(choice: Choice, endpoint: EndpointKind) -> Content:
    """A choice's text, None if the server sent null; and its reasoning, if the server separates it.

    Raises:
        ReplyError: the text is missing, or of an unknown shape.
    """
    message = choice.message
    if endpoint == "chat" and message is not None:
        return content_in(message.content, message.reasoning_content, message.reasoning)
    if choice.text is msgspec.UNSET:
        raise ReplyError(
            FailureCause.MALFORMED_REPLY, f"the choice has no {'message' if endpoint == 'chat' else 'text'}"
        )
    return content_in(choice.text)


def content_in(content: Any, *reasoning: Any) -> Content:
    """Text and reasoning of a message.

    Args:
        content: the message's content, which may include reasoning.
        reasoning: other fields that may hold the reasoning; the first that is present counts.

    Raises:
        ReplyError: the content is of an unknown shape.
    """
    apart = next(filter(None, map(_reasoning_in, reasoning)), None) if any(reasoning) else None
    if content is None or isinstance(content, str):
        return Content(content, apart)
    try:
        found = read_content(content)
    except UnreadableContentError as error:
        raise ReplyError(FailureCause.UNREADABLE_REPLY, str(error)) from None
    return Content(found.text, apart or found.reasoning)


def _reasoning_in(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return "".join(filter(None, read_content(value)))
    except UnreadableContentError:
        return None  # reasoning that cannot be read does not fail the answer


def says_error(error: Any) -> bool:
    """Whether a reply's ``error`` field holds an error: some servers send it empty."""
    return any(error.values()) if isinstance(error, dict) else bool(error)


def error_in_reply(error: Any) -> ReplyError:
    """The error in a reply of status 200, in any of the shapes that servers send."""
    return ReplyError(FailureCause.ERROR_IN_REPLY, error_text(error), _status_in(error))


def _status_in(error: Any) -> int | None:
    """The HTTP status that an error in a reply of status 200 names, as gateways and streams send it."""
    inner = error.get("error", error) if isinstance(error, dict) else None
    codes = [inner.get(name) for name in ("code", "status", "status_code")] if isinstance(inner, dict) else []
    return next((int(code) for code in map(str, codes) if _ERROR_STATUS.fullmatch(code)), None)


def broken_off(last: bytes) -> ReplyError:
    """The error for a stream that ended before its answer was complete.

    Args:
        last: the data of its last event if that may give the reason; else empty.
    """
    parsed = f"; it said: {_excerpt(last)}" if last else ""
    return ReplyError(FailureCause.RESET, f"the stream ended before the answer was complete{parsed}")


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
    """The message in the body of an error status.

    That is the message and the field that it is about from JSON, the visible words of HTML, else the text.
    """
    try:
        value = json.loads(body.strip().removeprefix(b"data:"))  # Some send their errors as events, too.
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
        return _words_of_page(text) if text.lstrip()[:1] == "<" else text
    parsed, name = error_text(value), _field_in(value)
    return parsed if name is None or name in parsed else f"{parsed} (field {name})"


def _field_in(value: Any) -> str | None:
    """The request's field that an error names in ``param``; None if it names none."""
    error = value.get("error", value) if isinstance(value, dict) else None
    return str_or_none(error.get("param")) if isinstance(error, dict) else None


def _words_of_page(page: str) -> str:
    words = html.unescape(_TAG.sub(" ", _NO_WORDS.sub(" ", page[:_PAGE_READ]))).split()
    # The heading says again what the title says.
    again = next((n for n in range(len(words) // 2, 0, -1) if words[:n] == words[n : 2 * n]), 0)
    return " ".join(words[again:])


def _is_of_another_protocol(body: bytes) -> bool:
    """Whether an object holds an answer somewhere, and no word of trouble: it would be the same if asked for again."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return bool(value) and "choices" not in value and _TROUBLE.isdisjoint(value)


def _excerpt(body: bytes) -> str:
    # Longer than what is shown: the caller truncates it after blanking secrets.
    return body[:65536].decode("utf-8", "replace")


def str_or_none(value: Any) -> str | None:
    """The value, if it is a string."""
    return value if isinstance(value, str) else None


def reasoning_tokens(usage: dict[str, Any]) -> int | None:
    """The tokens of reasoning among those of a completion, where the server counts them."""
    details = usage.get("completion_tokens_details")
    return token_count(details.get("reasoning_tokens")) if isinstance(details, dict) else None


def token_count(value: Any, *, nothing_counted: bool = False) -> int | None:
    """A number of tokens. Zero is one only of nothing: servers that do not count say 0, or -1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value < _MOST_TOKENS or (value == 0 and nothing_counted) else None
