"""Encodes texts line by line where that gives the same tokens, so that lines seen before need not be encoded again.

Few-shot examples and a question's choices make most of a prompt a repetition of the one before. With the ways of
splitting that :mod:`assay.tasks.splitting` knows, no piece reaches over a single line break from a printable ASCII
character to an ASCII letter, and whether one ends there does not depend on what follows: the piece before has the
line break as its last character, and the piece after begins with the letter. (The last of several blanks in a row
goes with what follows; that is why the break must be a single one.)
"""

from __future__ import annotations

import functools
import re
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SEAM = re.compile(r"(?<=[!-~]\n)(?=[A-Za-z])")
_LINES_KEPT = 2048


class LineEncoder:
    """Gives the same token ids as `encode`, remembering those of lines.

    Args:
        encode: text to token ids, by a tokenizer with a known way of splitting.
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode_line = functools.lru_cache(maxsize=_LINES_KEPT)(lambda line: array("I", encode(line)))

    def __call__(self, text: str) -> list[int]:
        """Token ids of `text`."""
        ids = array("I")
        for line in _SEAM.split(text):
            ids += self._encode_line(line)
        return ids.tolist()
