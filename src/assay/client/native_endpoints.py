"""Servers' own endpoints for a prompt's log-probabilities, where their completions endpoint returns none.

SGLang's ``/generate`` (https://docs.sglang.io/basic_usage/native_api.html) returns all of them: the reply's
``meta_info`` holds ``input_token_logprobs`` and ``input_top_logprobs``, for each token of the prompt
``[log-probability, id, text]`` and a list of these. The first token's log-probability is null.

llama.cpp's ``/completion`` returns that of a generated token alone. A bias makes it generate the token that is asked
about; the log-probability that it returns is the one before the bias. So each token takes a request of its own, whose
beginning the server has in its cache.

Both vLLM and llama.cpp split a text into tokens at ``/tokenize``; vLLM renders a chat there too, llama.cpp at
``/apply-template``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BIAS = 1e6
"""More than any two logits differ by."""
_PATHS = {
    b'{"text": ': "/generate",
    b'{"input_ids": ': "/generate",
    b'{"n_predict": ': "/completion",
    b'{"add_special_tokens": ': "/tokenize",
    b'{"add_special": ': "/tokenize",
    b'{"add_generation_prompt": ': "/apply-template",
}
"""By how a body begins; no body of OpenAI's protocol begins so."""
_BEGINNINGS = tuple(_PATHS)


def native_path(body: bytes) -> str | None:
    """Where a body goes, relative to the server's root; None if it is one of OpenAI's protocol."""
    if not body.startswith(_BEGINNINGS):  # asked of every request
        return None
    return next(path for beginning, path in _PATHS.items() if body.startswith(beginning))


def sglang_body(prompt: str, *, top: int = 1) -> bytes:
    """The body that asks SGLang for a prompt's own log-probabilities.

    Args:
        prompt: JSON: a text, or a list of token ids.
        top: how many of the likeliest tokens to list at each place.
    """
    name = "text" if prompt.startswith('"') else "input_ids"
    return (
        f'{{"{name}": {prompt}, "sampling_params": {{"max_new_tokens": 1, "temperature": 0}}, "return_logprob": true, '
        f'"logprob_start_len": 0, "top_logprobs_num": {top}, "return_text_in_logprobs": true}}'
    ).encode("ascii")


def llama_cpp_body(context: Sequence[int], token: int | None, *, top: int = 1, uses_cache: bool = True) -> bytes:
    """The body that asks llama.cpp for a token's log-probability.

    Args:
        context: the ids of the tokens before it.
        token: its id; None for the likeliest.
        top: how many of the likeliest tokens to list.
        uses_cache: whether the server may take what it computed for another request.
    """
    bias = "" if token is None else f', "logit_bias": [[{token}, {_BIAS}]]'
    cache = "" if uses_cache else ', "cache_prompt": false'
    return f'{{"n_predict": 1, "n_probs": {top}, "temperature": 0, "prompt": {list(context)}{bias}{cache}}}'.encode(
        "ascii"
    )


def vllm_tokenize_body(model: str, prompt: str | Sequence[Mapping[str, Any]], *, is_start: bool = True) -> bytes:
    """The body that asks vLLM for the token ids of a text, or of a chat as it is put to the model.

    Args:
        model: the served name.
        prompt: a text, or messages.
        is_start: whether the text begins a sequence, so that a BOS token may stand before it.
    """
    if isinstance(prompt, str):
        asked = {"add_special_tokens": is_start, "model": model, "prompt": prompt}
    else:  # the template writes its own special tokens
        asked = {
            "add_special_tokens": False,
            "model": model,
            "messages": list(prompt),
            "add_generation_prompt": True,
        }
    return json.dumps(asked).encode("ascii")


def llama_cpp_tokenize_body(text: str, *, is_start: bool = True) -> bytes:
    """The body that asks llama.cpp for a text's token ids; `is_start` as for vLLM."""
    return json.dumps({"add_special": is_start, "content": text}).encode("ascii")


def llama_cpp_template_body(messages: Sequence[Mapping[str, Any]]) -> bytes:
    """The body that asks llama.cpp for a chat as the text that is put to the model."""
    return json.dumps({"add_generation_prompt": True, "messages": list(messages)}).encode("ascii")


class MetaInfo(msgspec.Struct):
    """What SGLang's reply says besides its text."""

    input_token_logprobs: list[tuple[float | None, int, str | None]]
    input_top_logprobs: list[list[tuple[float | None, int, str | None]] | None]
    prompt_tokens: Any = None
    completion_tokens: Any = None

    def candidates(self) -> list[dict[str, float]]:
        """For each token of the prompt, the likeliest ones in its place by their texts."""
        return [
            {text or "": value for value, _, text in entries or () if value is not None}
            for entries in self.input_top_logprobs
        ]


class _Token(msgspec.Struct):
    token: str
    logprob: float


class GeneratedToken(_Token):
    """An entry of llama.cpp's ``completion_probabilities``."""

    top_logprobs: list[_Token]
