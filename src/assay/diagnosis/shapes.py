"""What an answer looks like, whatever it says: enough to see that two runs' answers differ in form."""

from __future__ import annotations

import string
import sys
import zlib

import msgspec

_OPENING = 12
_PLAIN = frozenset(string.ascii_letters + string.digits + " ")
_LAST_LATIN = 0x24F
_FULL_WIDTH = range(0xFF21, 0xFF5B)


class Shape(msgspec.Struct, frozen=True, gc=False):
    """The form of a text."""

    checksum: int
    """Equal for equal texts."""
    opening: str
    """Its first characters."""
    words: int
    """How many there are between blanks, roughly."""
    marks: str
    """Each sign and unusual letter in it once, in order: no letters of other scripts, one for all full-width ones."""


def shape_of(text: str) -> Shape:
    """The form of a text."""
    marks = {_mark(character) for character in set(text) - _PLAIN}
    return Shape(
        checksum=zlib.crc32(text.encode("utf-8", "replace")),
        words=text.count(" ") + 1,
        opening=sys.intern(text[:_OPENING]),
        marks=sys.intern("".join(sorted(marks))),
    )


def _mark(character: str) -> str:
    if ord(character) <= _LAST_LATIN or not character.isalpha():
        return character
    return "\uff21" if ord(character) in _FULL_WIDTH else ""
