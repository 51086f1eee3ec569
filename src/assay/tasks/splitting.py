"""How a tokenizer splits a text into the pieces that it encodes each by itself, read from its ``tokenizer.json``."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec


class Splitting(NamedTuple):
    """A known way of splitting."""

    ascii_patterns: tuple[re.Pattern[str], ...]
    """Each splits the pieces that the one before has found further. For texts of ASCII characters alone."""
    added_tokens: tuple[str, ...]
    """Texts that are one token wherever they stand, and no part of a piece."""


def known_splitting(tokenizer_file: bytes) -> Splitting | None:
    """How a byte-level BPE splits; None unless in a way known here, with nothing that looks beyond a piece.

    Args:
        tokenizer_file: content of a ``tokenizer.json``.
    """
    try:
        tokenizer = _decoder.decode(tokenizer_file)
    except msgspec.DecodeError:
        return None
    if tokenizer.model.type != "BPE" or tokenizer.model.dropout or tokenizer.normalizer not in (None, {"type": "NFC"}):
        return None
    added = tokenizer.added_tokens
    if any("\n" in token.content or token.lstrip or token.rstrip or token.single_word for token in added):
        return None
    step = tokenizer.pre_tokenizer
    patterns = [_pattern(each) for each in (step.pretokenizers if isinstance(step, _Sequence) else [step])]
    if None in patterns or _WORDS.isdisjoint(patterns):
        return None
    return Splitting(
        tuple(re.compile(_in_ascii(pattern), re.ASCII) for pattern in patterns if pattern),
        tuple(token.content for token in added),
    )


class _Model(msgspec.Struct):
    type: str | None = None
    dropout: float | None = None


class _AddedToken(msgspec.Struct):
    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class _ByteLevel(msgspec.Struct, tag_field="type", tag="ByteLevel"):
    add_prefix_space: bool = True
    use_regex: bool = True


class _Digits(msgspec.Struct, tag_field="type", tag="Digits"):
    individual_digits: bool = False


class _Regex(msgspec.Struct, rename="pascal"):
    regex: str


class _Split(msgspec.Struct, tag_field="type", tag="Split"):
    pattern: _Regex
    behavior: str
    invert: bool = False


class _Sequence(msgspec.Struct, tag_field="type", tag="Sequence"):
    pretokenizers: list[_ByteLevel | _Digits | _Split]


class _TokenizerFile(msgspec.Struct):
    model: _Model
    added_tokens: list[_AddedToken]
    pre_tokenizer: _ByteLevel | _Digits | _Split | _Sequence
    normalizer: Any = None


_decoder = msgspec.json.Decoder(_TokenizerFile)

_NUMBERS_APART = r"\p{N}+|[^\p{N}]+"
_DIGITS_APART = r"\p{N}|[^\p{N}]+"
_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_AFTER_NUMBERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3, _QWEN2 = (
    rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}|{_AFTER_NUMBERS}"
    for numbers in (r"\p{N}{1,3}", r"\p{N}")
)
"""Of Llama 3 and GPT-4's cl100k; of Qwen 2 and later."""
_WORDS = frozenset({_GPT2, _LLAMA3, _QWEN2})
"""Patterns that leave no two words together."""


def _pattern(step: _ByteLevel | _Digits | _Split | _Sequence) -> str | None:
    """What a step's pieces match; nothing if it does not split, None if it is not known what it does."""
    match step:
        case _ByteLevel(add_prefix_space=False):
            return _GPT2 if step.use_regex else ""
        case _Digits():
            return _DIGITS_APART if step.individual_digits else _NUMBERS_APART
        case _Split(behavior="Isolated", invert=False) if step.pattern.regex in _WORDS:
            return step.pattern.regex
    return None


def _in_ascii(pattern: str) -> str:
    """The same pattern for Python's ``re``, which has no classes of letters and numbers; in sets they come last."""
    in_sets = pattern.replace(r"\p{L}\p{N}]", "A-Za-z0-9]").replace(r"\p{N}]", "0-9]")
    return in_sets.replace(r"\p{L}", "[A-Za-z]").replace(r"\p{N}", "[0-9]")
