"""Encodes ASCII texts piece by piece, so that words seen before need not be encoded again.

A byte-level BPE encodes each of the pieces into which it splits a text by itself, and most of a text's pieces are words
that came before.
"""

from __future__ import annotations

import functools
import re
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.tasks.splitting import Splitting

_PIECES_KEPT = 2**16
_NEVER = "(?!)"
"""A pattern that matches nothing."""


class PieceEncoder:
    """Gives the same token ids as `encode`, remembering those of pieces.

    Texts with other characters than ASCII, or with an added token in them, are left to `encode`.

    Args:
        encode: text to token ids.
        splitting: how it splits texts.
    """

    def __init__(self, encode: Callable[[str], list[int]], splitting: Splitting) -> None:
        self._encode = encode
        self._encode_piece = functools.lru_cache(maxsize=_PIECES_KEPT)(lambda piece: tuple(encode(piece)))
        self._split = [pattern.findall for pattern in splitting.ascii_patterns]
        self._find_added_token = re.compile("|".join(map(re.escape, splitting.added_tokens)) or _NEVER).search

    def __call__(self, text: str) -> list[int]:
        """Token ids of `text`."""
        if not text.isascii() or self._find_added_token(text):
            return self._encode(text)
        pieces = [text]
        for split in self._split:
            pieces = list(chain.from_iterable(map(split, pieces)))
        return list(chain.from_iterable(map(self._encode_piece, pieces)))
