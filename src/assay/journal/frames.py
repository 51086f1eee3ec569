"""The file format of a journal: a magic line, then frames with checksums, which can be found again after damage.

A frame is ``RS length SP checksum SP payload LF``: the record separator 0x1E; the payload's length and its CRC-32, each
as eight lower-case hexadecimal digits; the payload, UTF-8 JSON. JSON escapes control characters inside strings, so
neither 0x1E nor a line feed ever occurs within a payload, whatever a model says: 0x1E always starts a frame.
"""

from __future__ import annotations

import functools
import os
import re
import zlib
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC = b"assay-journal\n"
MAX_PAYLOAD = 64 * 2**20
"""Bytes. A frame that claims to be longer is damage, and nothing is allocated for it."""

_MARK = b"\x1e"
_HEAD = re.compile(rb"\x1e([0-9a-f]{8}) ([0-9a-f]{8}) ")
_HEAD_LENGTH = 19
_CHUNK = 2**20
_NEIGHBOURHOOD = 2**16


class Frame(NamedTuple):
    """A whole frame with a matching checksum."""

    offset: int
    end: int
    payload: bytes


class Damage(NamedTuple):
    """Bytes that belong to no whole frame. One that reaches the end of the file is a torn tail."""

    offset: int
    end: int


def encode_frame(payload: bytes) -> bytes:
    """Frame a payload of UTF-8 JSON.

    Raises:
        JournalError: The payload is longer than ``MAX_PAYLOAD``.
    """
    if len(payload) > MAX_PAYLOAD:
        raise JournalError(
            f"a response of {len(payload)} bytes is too long to record (at most {MAX_PAYLOAD}): bound it"
        )
    return b"\x1e%08x %08x %b\n" % (len(payload), zlib.crc32(payload), payload)


def scan(fd: int, size: int, start: int = 0) -> Iterator[Frame | Damage]:
    """Every whole frame between two offsets of an open file, and the damage between frames, in file order.

    Args:
        fd: Open for reading; its file position is neither used nor changed.
        size: Where to stop: the file's size when reading began.
        start: Where to begin: 0, the start of a frame, or anywhere (then what precedes the next frame is damage).

    Raises:
        OSError: The file cannot be read.
    """
    window = _Window(fd, size, _CHUNK)
    offset = start
    if start == 0 and window.read(0, len(MAGIC)) == MAGIC:
        offset = len(MAGIC)
    damaged_from: int | None = None
    while offset < size:
        payload = _payload_at(window, offset)
        if payload is None:
            if damaged_from is None:
                damaged_from = offset
            offset = window.find(_MARK, offset + 1)
            continue
        if damaged_from is not None:
            yield Damage(damaged_from, offset)
            damaged_from = None
        frame = Frame(offset, offset + _HEAD_LENGTH + len(payload) + 1, payload)
        yield frame
        offset = frame.end
    if damaged_from is not None:
        yield Damage(damaged_from, size)


def read_payload(fd: int, size: int, offset: int) -> bytes | None:
    """The payload of the frame at ``offset``; None if no whole frame starts there."""
    return _payload_at(_Window(fd, size, chunk=4096), offset)


def payload_reader(fd: int, size: int) -> Callable[[int], bytes | None]:
    """A function like :func:`read_payload` for many frames, buffered because most lie close together."""
    return functools.partial(_payload_at, _Window(fd, size, chunk=_NEIGHBOURHOOD))


def find_payloads(fd: int, size: int, beginning: bytes) -> Iterator[int]:
    """Offsets at which frames with such a payload may start, found by searching the file for its beginning."""
    overlap = len(beginning) - 1
    for start in range(0, size, _CHUNK):
        chunk = os.pread(fd, min(_CHUNK + overlap, size - start), start)
        found = chunk.find(beginning)
        while found >= 0:
            if start + found >= _HEAD_LENGTH:
                yield start + found - _HEAD_LENGTH
            found = chunk.find(beginning, found + 1)


def _payload_at(window: _Window, offset: int) -> bytes | None:
    head = _HEAD.fullmatch(window.read(offset, _HEAD_LENGTH))
    if head is None:
        return None
    length = int(head[1], 16)
    if length > MAX_PAYLOAD or offset + _HEAD_LENGTH + length + 1 > window.size:
        return None
    content = window.read(offset + _HEAD_LENGTH, length + 1)
    payload = content[:-1]
    if content[-1:] != b"\n" or len(payload) != length or zlib.crc32(payload) != int(head[2], 16):
        return None
    return payload


class _Window:
    """Reads a file through one buffer, so that many small reads in file order cost few system calls."""

    def __init__(self, fd: int, size: int, chunk: int) -> None:
        self.size = size
        self._fd = fd
        self._chunk = chunk
        self._start = 0
        self._bytes = b""

    def read(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes at ``offset``; fewer only where the file ends."""
        begin = offset - self._start
        if begin < 0 or begin + length > len(self._bytes):
            wanted = min(max(length, self._chunk), self.size - offset)
            self._bytes = os.pread(self._fd, wanted, offset)
            self._start = offset
            begin = 0
        return self._bytes[begin : begin + length]

    def find(self, needle: bytes, offset: int) -> int:
        """Where a single byte next occurs at or after ``offset``; the file's size if nowhere."""
        while offset < self.size:
            if not self.read(offset, 1):
                break
            found = self._bytes.find(needle, offset - self._start)
            if found >= 0:
                return self._start + found
            offset = self._start + len(self._bytes)
        return self.size
