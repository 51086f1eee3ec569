"""Reads ``scenario_state.json`` one request at a time, so that files of gigabytes need no memory of that size."""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING, Any

from assay.errors import FileFormatError
from assay.helm.adaptation import AdapterSpec, RequestState, ScenarioState
from assay.helm.structs import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK = 1 << 20
_LIST_BEGINS = b'\n  "request_states": ['
_ITEM_ENDS = b"\n    }"
_ERROR_PLACE = re.compile(r"at byte (\d+)")


class StateFile:
    """A scenario state on disk, with its request states read as they are asked for.

    HELM's own layout is read piece by piece. A file in another layout (compact, other indentation) is read whole.

    Raises:
        FileFormatError: The file is damaged or not a scenario state; the message names the byte.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        try:
            with path.open("rb") as file:
                head = self._read_head(file)
        except OSError as error:
            raise FileFormatError(f"{path} cannot be read: {error.strerror}") from None
        self._whole = ScenarioState.from_json(path.read_bytes(), self.name) if head is None else None
        self._items_begin = 0 if head is None else len(head) + len(_LIST_BEGINS)
        self._around: dict[str, Any] = {}
        """What the file says before and after its request states."""
        if self._whole is not None:
            self.adapter_spec = self._whole.adapter_spec
        elif head is not None:
            self._around = parse_json(head.rstrip().rstrip(b",") + b"\n}", self.name)
            spec = self._around.pop("adapter_spec")
            self.adapter_spec = AdapterSpec.from_builtins(spec, f"{self.name}: adapter_spec")

    def __iter__(self) -> Iterator[RequestState]:
        """The request states, in the file's order; each iteration reads the file anew."""
        if self._whole is not None:
            yield from self._whole.request_states
            return
        for index, (offset, text) in enumerate(self._items()):
            yield self._request_state(index, offset, text)

    def mentions(self, key: str) -> bool:
        """Whether some record of the file has an object under this key."""
        needle = f'"{key}": {{'.encode()
        if self._whole is not None:
            return self._whole.mentions(key)
        with self.path.open("rb") as file:
            kept = b""
            while chunk := file.read(_CHUNK):
                if needle in kept + chunk:
                    return True
                kept = chunk[-len(needle) :]
        return False

    def load(self) -> ScenarioState:
        """The whole state, in memory."""
        if self._whole is not None:
            return self._whole
        states = list(self)
        around = dict(self._around)
        annotators = around.pop("annotator_specs", None)
        return ScenarioState(self.adapter_spec, states, annotators, extras=tuple(around.items()) or None)

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

    def _items(self) -> Iterator[tuple[int, bytes]]:
        """Each request state's text and where it begins; at the end, what follows the list is noted."""
        with self.path.open("rb") as file:
            file.seek(self._items_begin)
            text, start, begin = b"", self._items_begin, 0
            while True:
                end = text.find(_ITEM_ENDS, begin) + len(_ITEM_ENDS)
                closed = text.startswith((b"]", b"\n  ]"), begin)
                if not closed and len(_ITEM_ENDS) <= end < len(text):
                    yield start + begin, text[begin:end]
                    begin = end + text.startswith(b",", end)
                    continue
                chunk = file.read(_CHUNK)
                if chunk:
                    text, start, begin = text[begin:] + chunk, start + begin, 0
                elif closed:
                    break
                else:
                    raise self._cut_off(start + len(text))
            self._around |= self._parse_tail(text[text.index(b"]", begin) + 1 :], start + len(text))

    def _parse_tail(self, text: bytes, size: int) -> dict[str, Any]:
        rest = text.strip()
        if not rest.endswith(b"}"):
            raise self._cut_off(size)
        tail = parse_json(b"{" + rest.removeprefix(b","), self.name)
        return dict(tail)

    def _request_state(self, index: int, offset: int, text: bytes) -> RequestState:
        source = f"{self.name}: request_states[{index}]"
        try:
            return RequestState.from_json(text, source)
        except FileFormatError as error:
            message = _ERROR_PLACE.sub(lambda place: f"at byte {int(place[1]) + offset}", str(error), count=1)
            raise FileFormatError(message) from None

    def _cut_off(self, size: int) -> FileFormatError:
        return FileFormatError(f"{self.name} ends in the middle, it was cut off at byte {size}")
