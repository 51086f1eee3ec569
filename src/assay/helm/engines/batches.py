"""What engines do alike with a batch of requests: cut their prompts, and seed their sampling."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from assay.errors import UnsupportedTaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.helm.adaptation import Request


def cut_prompt(
    request: Request,
    room: int,
    max_length: int,
    encode: Callable[[str], list[int]],
    decode: Callable[[Sequence[int]], str],
) -> Request:
    """The request with its prompt cut at its end, as HELM's window services do.

    Args:
        request: the request.
        room: tokens that the prompt may have.
        max_length: the model's context length in tokens, for the message.
        encode: a text's tokens, without any that are added to it.
        decode: the text of tokens.

    Raises:
        UnsupportedTaskError: there is no room for a prompt.
    """
    if room < 1:
        raise UnsupportedTaskError(
            f"the run asks for {request.max_tokens} tokens, but the model's context length is {max_length}"
        )
    ids = encode(request.prompt)
    if len(ids) <= room:
        return request
    kept = ids[:room]
    # Decoded and encoded again, a text may have more tokens than before.
    while len(encode(prompt := decode(kept))) > room:
        kept = kept[:-1]
    return msgspec.structs.replace(request, prompt=prompt)


def seed_of_batch(seed: int, requests: Sequence[Request]) -> int:
    """A seed for a batch, so that its samples do not depend on earlier batches."""
    digest = hashlib.sha256(str(seed).encode())
    for request in requests:
        digest.update(msgspec.json.encode((request.prompt, request.random)))
    return int.from_bytes(digest.digest()[:7])
