"""Reads ``scenario_state.json`` one request at a time, so that the file need not fit into memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from assay.errors import FileFormatError
from assay.helm.adaptation import AdapterSpec, RequestState, ScenarioState
from assay.helm.structs import Extent, extent_of, parse_json

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

_CHUNK = 1 << 20
_LIST_BEGINS = b'\n  "request_states": ['
_LIST_ENDS = b"\n  ]"
_ITEM_BEGINS = b"\n    {"
_ITEM_ENDS = b"\n    }"
_OBJECT_FOLLOWS = re.compile(rb"\s*:\s*\{")
_OVERLAP = 256
"""Bytes of a chunk that are searched again with the next one."""


class _AnotherLayout(Exception):  # noqa: N818 - the file may be valid
    """From here on the file is not in HELM's layout: it is damaged, or another program wrote it."""


class StateFile:
    """A scenario state on disk, whose request states are read one by one.

    HELM's own layout is read piece by piece. A file in another layout (compact, other indentation) is read whole.

    Args:
        path: The file.

    Raises:
        FileFormatError: The file is damaged or not a scenario state; the message names the byte.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.name = str(path)
        try:
            with self.path.open("rb") as file:
                head = self._read_head(file)
        except OSError as error:
            raise FileFormatError(f"{path} cannot be read: {error.strerror}") from None
        self._whole = self._read_whole() if head is None else None
        self._items_begin = 0 if head is None else len(head) + len(_LIST_BEGINS)
        self._other_keys: dict[str, Any] = {}
        """The file's other keys, before and after its request states."""
        if self._whole is not None:
            self.adapter_spec = self._whole.adapter_spec
        elif head is not None:
            self._other_keys = parse_json(head + _LIST_BEGINS + b"]\n}", self.name)
            del self._other_keys["request_states"]
            spec = self._other_keys.pop("adapter_spec")
            self.adapter_spec = AdapterSpec.from_builtins(spec, f"{self.name}: adapter_spec")

    def __iter__(self) -> Iterator[RequestState]:
        """The request states, in the file's order; each iteration reads the file again."""
        if self._whole is not None:
            yield from self._whole.request_states
            return
        index = 0
        try:
            for offset, text in self._items():
                yield self._request_state(index, offset, text)
                index += 1
        except _AnotherLayout:
            self._whole = self._read_whole()
            yield from self._whole.request_states[index:]

    def mentions(self, key: str) -> bool:
        """Whether any record of the file has an object under this key."""
        if self._whole is not None:
            return self._whole.mentions(key)
        quoted = f'"{key}"'.encode()
        with self.path.open("rb") as file:
            kept = b""
            while chunk := file.read(_CHUNK):
                text = kept + chunk
                index = text.find(quoted)
                while index >= 0:
                    index += len(quoted)
                    if _OBJECT_FOLLOWS.match(text, index):
                        return True
                    index = text.find(quoted, index)
                kept = text[-_OVERLAP:]
        return False

    def load(self) -> ScenarioState:
        """The whole state, in memory."""
        if self._whole is not None:
            return self._whole
        states = list(self)
        return self._whole or self._with_other_keys(states)  # the layout may change in the middle

    def _with_other_keys(self, states: list[RequestState]) -> ScenarioState:
        others = dict(self._other_keys)
        annotators = others.pop("annotator_specs", None)
        return ScenarioState(self.adapter_spec, states, annotators, extras=tuple(others.items()) or None)

    def _read_head(self, file: IO[bytes]) -> bytes | None:
        text = file.read(_CHUNK)
        if not text.startswith(b'{\n  "adapter_spec": {'):
            return None
        while (end := text.find(_LIST_BEGINS)) < 0:
            chunk = file.read(_CHUNK)
            if not chunk:
                return None
            text += chunk
        return text[:end]

    def _read_whole(self) -> ScenarioState:
        return ScenarioState.from_json(self.path.read_bytes(), self.name)

    def _request_state(self, index: int, offset: int, text: bytes) -> RequestState:
        try:
            return RequestState.from_json(text, f"{self.name}: request_states[{index}]", offset)
        except FileFormatError:
            if extent_of(text) in (Extent.SHORTER, Extent.LONGER):
                raise _AnotherLayout from None
            raise

    def _items(self) -> Iterator[tuple[int, bytes]]:
        """Each request state's offset and text; at the end, reads the keys that follow the list."""
        with self.path.open("rb") as file:
            file.seek(self._items_begin)
            text, start, begin = b"", self._items_begin, 0
            comma = b""
            while True:
                item_begins = comma + _ITEM_BEGINS
                if text.startswith(item_begins, begin):
                    end = text.find(_ITEM_ENDS, begin)
                    if end >= 0:
                        end += len(_ITEM_ENDS)
                        yield start + begin + len(comma), text[begin + len(comma) : end]
                        begin, comma = end, b","
                        continue
                elif text.startswith(list_ends := _LIST_ENDS if comma else b"]", begin):
                    tail_begins = begin + len(list_ends)
                    break
                elif not item_begins.startswith(text[begin:]) and not _LIST_ENDS.startswith(text[begin:]):
                    raise _AnotherLayout
                if chunk := file.read(_CHUNK):
                    text, start, begin = text[begin:] + chunk, start + begin, 0
                else:
                    raise self._cut_off(text[begin:], comma, start + len(text))
            self._other_keys |= self._parse_tail(text[tail_begins:] + file.read(), start + tail_begins)

    def _parse_tail(self, text: bytes, offset: int) -> dict[str, Any]:
        before = b'{"": []'
        tail = parse_json(before + text, self.name, offset - len(before))
        del tail[""]
        for key in ("adapter_spec", "request_states"):
            if key in tail:
                raise FileFormatError(f"{self.name} has {key!r} twice")
        return dict(tail)

    def _cut_off(self, rest: bytes, comma: bytes, size: int) -> Exception:
        """The error of a file that ends before its list does."""
        if rest.startswith(comma + _ITEM_BEGINS) and extent_of(rest[len(comma) :]) is not Extent.LONGER:
            return _AnotherLayout()
        return FileFormatError(f"{self.name} is incomplete: it was cut off at byte {size}")
