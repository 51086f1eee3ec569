"""Encodes texts line by line where that gives the same tokens, so that lines seen before need not be encoded again.

Few-shot examples and a question's choices make most of a prompt a repetition of the one before. A byte-level BPE
encodes the pieces into which its pattern splits a text each by itself. With the patterns known here, no piece reaches
over a single line break from a printable ASCII character to an ASCII letter, and whether it ends there does not depend
on what lies beyond: a piece before takes the line break as its last character, and one after begins with the letter.
(Of several blanks in a row, the last goes with what follows; that is why the break must be a single one.)
"""

from __future__ import annotations

import functools
import re
from array import array
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_SEAM = re.compile(r"(?<=[!-~]\n)(?=[A-Za-z])")
_LINES_KEPT = 2048
_BEGINNINGS_KEPT = 16
"""Texts up to their last line: a question's choices follow one another and differ in that line alone."""


class LineEncoder:
    """Gives the same token ids as `encode`, remembering those of lines, and of texts up to their last line.

    Args:
        encode: text to token ids; see :func:`encodes_by_line`.
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


def encodes_by_line(tokenizer_file: bytes) -> bool:
    """Whether the tokenizer gives for lines apart what it gives for the whole text; False also where that is not known.

    Args:
        tokenizer_file: content of a ``tokenizer.json``.
    """
    try:
        tokenizer = _decoder.decode(tokenizer_file)
    except msgspec.DecodeError:
        return False
    return (
        tokenizer.model.type == "BPE"
        and not tokenizer.model.dropout
        and (tokenizer.normalizer is None or tokenizer.normalizer == {"type": "NFC"})
        and not any(
            "\n" in token.content or token.lstrip or token.rstrip or token.single_word
            for token in tokenizer.added_tokens
        )
        and _splits_at_lines(tokenizer.pre_tokenizer)
    )


class _Model(msgspec.Struct):
    type: str | None = None
    dropout: float | None = None


class _AddedToken(msgspec.Struct):
    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class _TokenizerFile(msgspec.Struct):
    model: _Model
    added_tokens: list[_AddedToken]
    normalizer: Any = None
    pre_tokenizer: Any = None


_decoder = msgspec.json.Decoder(_TokenizerFile)

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_AFTER_NUMBERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS = frozenset(
    # Llama 3 and GPT-4's cl100k; Qwen 2 and later.
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}|{_AFTER_NUMBERS}"
    for numbers in (r"\p{N}{1,3}", r"\p{N}")
)


def _splits_at_lines(step: Any) -> bool:
    if not isinstance(step, dict):
        return False
    steps = step.get("pretokenizers") if step.get("type") == "Sequence" else [step]
    if not isinstance(steps, list) or not all(isinstance(each, dict) for each in steps):
        return False
    # A step without a pattern of its own leaves it to another to split at the line.
    return all(map(_respects_lines, steps)) and any(
        each.get("type") == "Split" or each.get("use_regex") for each in steps
    )


def _respects_lines(step: dict[str, Any]) -> bool:
    match step.get("type"):
        case "ByteLevel":  # With use_regex it splits by GPT-2's pattern.
            return not step.get("add_prefix_space", True)
        case "Digits":
            return True
        case "Split":
            pattern = step.get("pattern")
            known = isinstance(pattern, dict) and pattern.get("Regex") in _PATTERNS
            return known and step.get("behavior") == "Isolated" and not step.get("invert")
    return False
