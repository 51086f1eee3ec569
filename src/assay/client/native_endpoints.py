"""Servers' own endpoints for a prompt's log-probabilities, where their completions endpoint returns none.

SGLang's ``/generate`` (https://docs.sglang.io/basic_usage/native_api.html) returns all of them: the reply's
``meta_info`` holds ``input_token_logprobs`` and ``input_top_logprobs``, for each token of the prompt
``[log-probability, id, text]`` and a list of these. The first token's log-probability is null.

llama.cpp's ``/completion`` returns that of a generated token alone. A bias makes it generate the token that is asked
about; the log-probability that it returns is the one before the bias. So each token takes a request of its own, whose
beginning the server has in its cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

_BIAS = 1e6
"""More than any two logits differ by."""
_PATHS = {b'{"text": ': "/generate", b'{"input_ids": ': "/generate", b'{"n_predict": ': "/completion"}
"""By how a body begins; no body of OpenAI's protocol begins so."""
_BEGINNINGS = tuple(_PATHS)


def native_path(body: bytes) -> str | None:
    """Where a body goes, relative to the server's root; None if it is one of OpenAI's protocol."""
    if not body.startswith(_BEGINNINGS):  # asked of every request
        return None
    return next(path for beginning, path in _PATHS.items() if body.startswith(beginning))


def sglang_body(prompt: str) -> bytes:
    """The body that asks SGLang for a prompt's own log-probabilities.

    Args:
        prompt: JSON: a text, or a list of token ids.
    """
    name = "text" if prompt.startswith('"') else "input_ids"
    return (
        f'{{"{name}": {prompt}, "sampling_params": {{"max_new_tokens": 1, "temperature": 0}}, "return_logprob": true, '
        '"logprob_start_len": 0, "top_logprobs_num": 1, "return_text_in_logprobs": true}'
    ).encode("ascii")


def llama_cpp_body(context: Sequence[int], token: int | None) -> bytes:
    """The body that asks llama.cpp for a token's log-probability.

    Args:
        context: the ids of the tokens before it.
        token: its id; None for the likeliest.
    """
    bias = "" if token is None else f', "logit_bias": [[{token}, {_BIAS}]]'
    return f'{{"n_predict": 1, "n_probs": 1, "temperature": 0, "prompt": {list(context)}{bias}}}'.encode("ascii")


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
