"""Caches the table of punctuation that lm-eval's filter ``multi_choice_regex`` looks up in all of Unicode at each use.

That takes a quarter of a second. lm-eval applies the filter once a task, Assay once a document, as answers arrive.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def cache_punctuation() -> None:
    """Let the filter look only at the characters that it is going to find. Doing it again changes nothing."""
    from lm_eval.filters import extraction

    # A name of the module's own comes before the builtin's. What is found stays the same, and in the same order.
    extraction.range = _range


def _range(*bounds: int) -> Iterable[int]:
    return _punctuation() if bounds == (sys.maxunicode,) else range(*bounds)


@functools.cache
def _punctuation() -> tuple[int, ...]:
    return tuple(code for code in range(sys.maxunicode) if unicodedata.category(chr(code)).startswith("P"))
