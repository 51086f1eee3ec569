"""A prompt as the token ids that a server's model reads, by the server's own template and tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.native_endpoints import llama_cpp_template_body, llama_cpp_tokenize_body, vllm_tokenize_body
from assay.client.replies import ReplyError
from assay.errors import ServerRefusedError
from assay.types import Failure, FailureCause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from assay.client.openai import OpenAIModel

    T = TypeVar("T")

Messages = tuple[dict[str, Any], ...]
"""A chat: each message with its ``role`` and ``content``."""
Prompt = str | Messages | tuple[int, ...]
"""A text, a chat, or token ids."""


class _Tokens(msgspec.Struct):
    tokens: list[int | _WithText]


class _WithText(msgspec.Struct):
    id: int


class _Rendered(msgspec.Struct):
    prompt: str


_tokens_decoder = msgspec.json.Decoder(_Tokens)
_rendered_decoder = msgspec.json.Decoder(_Rendered)


async def ids_of_prompt(model: OpenAIModel, prompt: Prompt) -> tuple[int, ...] | None:
    """The ids of the tokens of `prompt`, with what the template adds; None if the server does not tell.

    Args:
        model: the server.
        prompt: token ids stay what they are.

    Raises:
        ServerUnreachableError: the server has been down for too long.
    """
    if isinstance(prompt, str):
        return await ids_of_text(model, prompt)
    if not prompt or isinstance(prompt[0], int):
        return tuple(each for each in prompt if isinstance(each, int))
    messages = [each for each in prompt if isinstance(each, dict)]
    ids = await _asked(model, vllm_tokenize_body(model.spec.model, messages), _read_ids)
    if ids:
        return ids
    text = await text_of_chat(model, messages)
    return None if text is None else await _asked(model, llama_cpp_tokenize_body(text), _read_ids)


async def ids_of_text(model: OpenAIModel, text: str, *, is_start: bool = True) -> tuple[int, ...] | None:
    """The ids of a text's tokens; None if the server does not tell.

    Args:
        model: the server.
        text: the text.
        is_start: whether it begins a sequence, so that a BOS token may stand before it.
    """
    name = model.spec.model
    ids = await _asked(model, vllm_tokenize_body(name, text, is_start=is_start), _read_ids)
    return ids or await _asked(model, llama_cpp_tokenize_body(text, is_start=is_start), _read_ids)


async def text_of_chat(model: OpenAIModel, messages: Sequence[Mapping[str, Any]]) -> str | None:
    """A chat as the text that llama.cpp puts to the model; None if the server does not tell."""
    return await _asked(model, llama_cpp_template_body(messages), _read_text)


async def _asked(model: OpenAIModel, body: bytes, read: Callable[[bytes], T]) -> T | None:
    try:
        reply = await model.exchange(body, read)
    except ServerRefusedError:  # it has no such endpoint
        return None
    return None if isinstance(reply, Failure) else reply


def _read_ids(body: bytes) -> tuple[int, ...]:
    try:
        tokens = _tokens_decoder.decode(body).tokens
    except msgspec.DecodeError as error:
        raise ReplyError(FailureCause.UNREADABLE_REPLY, f"the reply holds no token ids: {error}") from None
    ids = tuple(each if isinstance(each, int) else each.id for each in tokens)
    if not ids:  # llama.cpp reads a field that it does not know as an empty text
        raise ReplyError(FailureCause.UNREADABLE_REPLY, "the reply holds no token ids")
    return ids


def _read_text(body: bytes) -> str:
    try:
        return _rendered_decoder.decode(body).prompt
    except msgspec.DecodeError as error:
        raise ReplyError(FailureCause.UNREADABLE_REPLY, f"the reply holds no rendered chat: {error}") from None
