"""SGLang's native ``/generate``, which returns a prompt's log-probabilities where its completions endpoint does not.

See https://docs.sglang.io/basic_usage/native_api.html. The reply's ``meta_info`` holds ``input_token_logprobs`` and
``input_top_logprobs``: for each token of the prompt ``[log-probability, id, text]``, and a list of these. The first
token's log-probability is null.
"""

from __future__ import annotations

from typing import Any

import msgspec

PATH = "/generate"
"""Relative to the server's root."""
_BEGINNINGS = (b'{"text": ', b'{"input_ids": ')


def native_body(prompt: str) -> bytes:
    """The body that asks for a prompt's own log-probabilities.

    Args:
        prompt: JSON: a text, or a list of token ids.
    """
    name = "text" if prompt.startswith('"') else "input_ids"
    return (
        f'{{"{name}": {prompt}, "sampling_params": {{"max_new_tokens": 1, "temperature": 0}}, "return_logprob": true, '
        '"logprob_start_len": 0, "top_logprobs_num": 1, "return_text_in_logprobs": true}'
    ).encode("ascii")


def is_native(body: bytes) -> bool:
    """Whether :func:`native_body` wrote a request's body: no body of OpenAI's protocol begins so."""
    return body.startswith(_BEGINNINGS)


class MetaInfo(msgspec.Struct):
    """What a reply says besides its text."""

    input_token_logprobs: list[tuple[float | None, int, str | None]]
    input_top_logprobs: list[list[tuple[float | None, int, str | None]] | None]
    prompt_tokens: Any = None
    completion_tokens: Any = None
    finish_reason: Any = None

    def candidates(self) -> list[dict[str, float]]:
        """For each token of the prompt, the likeliest ones in its place by their texts."""
        return [
            {text or "": value for value, _, text in entries or () if value is not None}
            for entries in self.input_top_logprobs
        ]
