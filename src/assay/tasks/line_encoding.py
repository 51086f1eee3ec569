"""Encodes texts line by line where that gives the same tokens, so that lines seen before need not be encoded again.

Few-shot examples and a question's choices make most of a prompt a repetition of the one before. With the ways of
splitting that :mod:`assay.tasks.splitting` knows, no piece reaches over a single line break from a printable ASCII
character to an ASCII letter, and whether it ends there does not depend on what lies beyond: a piece before takes the
line break as its last character, and one after begins with the letter. (Of several blanks in a row, the last goes with
what follows; that is why the break must be a single one.)
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
_BEGINNINGS_KEPT = 16
"""Texts up to their last line: a question's choices follow one another and differ in that line alone."""


class LineEncoder:
    """Gives the same token ids as `encode`, remembering those of lines, and of texts up to their last line.

    Args:
        encode: text to token ids, by a tokenizer with a known way of splitting.
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode_line = functools.lru_cache(maxsize=_LINES_KEPT)(lambda line: array("I", encode(line)))
        self._encode_beginning = functools.lru_cache(maxsize=_BEGINNINGS_KEPT)(self._encode_lines)

    def __call__(self, text: str) -> list[int]:
        """Token ids of `text`."""
        last = _beginning_of_last_line(text)
        ids = self._encode_beginning(text[:last]).tolist() if last else []
        ids += self._encode_line(text[last:])
        return ids

    def _encode_lines(self, text: str) -> array[int]:
        ids = array("I")
        for line in _SEAM.split(text):
            ids += self._encode_line(line)
        return ids


def _beginning_of_last_line(text: str) -> int:
    """Where the last line that can be encoded by itself begins."""
    place = text.rfind("\n")
    while place >= 0 and _SEAM.match(text, place + 1) is None:
        place = text.rfind("\n", 0, place)
    return place + 1
