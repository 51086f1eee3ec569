"""Chooses the samples whose texts an HTML report keeps whole, so that neither file nor memory grows too large.

Texts are JSON, deflated in chunks and written as base64, which no parser of HTML can take for anything else.
"""

from __future__ import annotations

import base64
import weakref
import zlib
from array import array
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.json_text import as_json, plain
from assay._util.spool import Spool
from assay.reports.page_texts import limited

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BUDGET = 4_400_000
"""Characters that the texts may take; page, scripts and rows add some 400,000 to it for 12,000 samples."""

MOST_HELD = 40_000_000
"""Bytes of JSON that wait on disk while samples are read. Of more than twice that hardly anything could be whole in the
file."""

_BRIEF = (1000, 500, 250, 120)
"""Lengths to which texts are cut where not all fit; the first that leaves half of the budget for whole ones."""

_COMPRESSION = 4
"""Takes less than half the time of level 6, for texts that are a twentieth longer."""
_CHUNK = 400_000
"""Bytes of JSON deflated together: what opening a sample has to inflate."""
_TRIED = 400
"""Samples from which the size of all is estimated."""
_CAREFUL = 0.97
"""The first attempt aims at this share of the budget, each further one at this share of the attempt before."""


class PackedTexts(msgspec.Struct, frozen=True, kw_only=True):
    """Texts as a report holds them."""

    chunks: list[str]
    """In base64."""
    firsts: list[int]
    """Number of each chunk's first sample."""
    whole: set[int]
    """The samples whose texts are whole (up to :data:`assay.reports.page_texts.WHOLE`)."""
    brief: int
    """To how many characters the others' texts are cut."""


class TextStore:
    """Takes the texts of samples one by one; packs them in the end."""

    def __init__(self) -> None:
        self._spool = Spool(what="a report's texts")
        weakref.finalize(self, self._spool.close)
        self._entries = array("q")
        """Each sample's texts, as JSON: their number in the spool."""
        self._turns = array("d")
        """By sample, when its turn comes to be kept whole: the lower, the sooner."""
        self._shortened: set[int] = set()
        self._held = 0
        self._most_held = MOST_HELD
        self._random = Random(0)

    def add(self, entry: dict[str, Any], rank: int) -> None:
        """Take a sample's texts.

        Args:
            entry: see :func:`assay.reports.page_texts.entry_of`.
            rank: 0 for what is to be kept whole first; of others, how many times later than rank 1 their turn comes,
                in a random order that is always the same.
        """
        self._entries.append(self._spool.append(as_json(entry)))
        self._turns.append(rank * self._random.random())
        self._held += self._length(-1)
        if self._held > self._most_held:
            self._shorten()
            self._most_held = max(MOST_HELD, 2 * self._held)  # cut texts may be as long: cut no more

    def entry(self, number: int) -> dict[str, Any]:
        """A sample's texts, by the order in which samples were added."""
        entry: dict[str, Any] = plain(self._entry(number))
        return entry

    def pack(self, budget: int) -> PackedTexts:
        """All texts, as long as the budget allows.

        Args:
            budget: characters.
        """
        numbers = range(len(self._entries))
        tried = [number for number in numbers if number not in self._shortened] or [*numbers]
        tried = tried[:: max(1, len(tried) // _TRIED)]
        per_byte = self._packed_size(tried, None) / max(1, sum(map(self._length, tried)))
        room = _CAREFUL * budget
        if not self._shortened and per_byte * self._held <= room:
            packed = self._packed(set(numbers), _BRIEF[0])
            if _size(packed) <= budget:
                return packed
        brief, each = self._brief(tried, room)
        order = [number for number in self._in_turn() if number not in self._shortened]
        while True:
            left = room - each * len(numbers)
            costs = accumulate(per_byte * self._length(number) - each for number in order)
            packed = self._packed({number for number, cost in zip(order, costs, strict=True) if cost <= left}, brief)
            if _size(packed) <= budget or not packed.whole:
                return packed
            room *= _CAREFUL

    def _brief(self, tried: Sequence[int], room: float) -> tuple[int, float]:
        """A length for brief texts, and what such a sample takes."""
        for limit in _BRIEF:
            each = self._packed_size(tried, limit) / len(tried)
            if each * len(self._entries) < room / 2 or limit == _BRIEF[-1]:
                break
        return limit, each

    def _shorten(self) -> None:
        """Cut the texts whose turn would come last, until half as much is held."""
        for number in reversed(self._in_turn()):
            if self._held <= MOST_HELD / 2:
                break
            if number in self._shortened:
                continue
            self._held -= self._length(number)
            self._entries[number] = self._spool.append(self._brief_entry(number, _BRIEF[0]))
            self._shortened.add(number)
            self._held += self._length(number)

    def _entry(self, number: int) -> bytes:
        return self._spool.read(self._entries[number])

    def _length(self, number: int) -> int:
        return self._spool.length(self._entries[number])

    def _brief_entry(self, number: int, limit: int) -> bytes:
        return as_json(limited(plain(self._entry(number)), limit))

    def _in_turn(self) -> list[int]:
        return sorted(range(len(self._turns)), key=self._turns.__getitem__)

    def _packed_size(self, numbers: Sequence[int], limit: int | None) -> int:
        chosen = (self._entry(number) if limit is None else self._brief_entry(number, limit) for number in numbers)
        return sum(len(chunk) for _, chunk in _chunks(chosen))

    def _packed(self, whole: set[int], brief: int) -> PackedTexts:
        texts = (
            self._entry(number) if number in whole else self._brief_entry(number, brief)
            for number in range(len(self._entries))
        )
        pairs = list(_chunks(texts))
        firsts, chunks = [first for first, _ in pairs], [chunk for _, chunk in pairs]
        return PackedTexts(chunks=chunks, firsts=firsts, whole=whole, brief=brief)


def deflated(text: bytes) -> str:
    """Deflated, in base64."""
    return base64.b64encode(zlib.compress(text, _COMPRESSION)).decode("ascii")


def _size(packed: PackedTexts) -> int:
    return sum(map(len, packed.chunks))


def _chunks(texts: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Number of the first sample, and the JSON list of all, packed."""
    first, size = 0, 0
    held: list[bytes] = []
    for number, text in enumerate(texts):
        if held and size + len(text) > _CHUNK:
            yield first, deflated(b"[%b]" % b",".join(held))
            first, held, size = number, [], 0
        held.append(text)
        size += len(text)
    if held:
        yield first, deflated(b"[%b]" % b",".join(held))
