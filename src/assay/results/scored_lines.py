"""Reads a document's lines of samples files, each decoded at once: three times as fast as value by value."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Self, cast

import msgspec

from assay.errors import FileFormatError
from assay.results.sample_files import READ_AHEAD, filter_of, parsed, raw_lines, reading, repeats_of, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay._util.places import PlacesByDocument


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of one request."""

    arg_0: msgspec.Raw = msgspec.Raw(b'""')
    """The prompt's JSON."""
    arg_1: Any = None


class ScoredLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a samples file, without its metrics, whose names differ by task."""

    doc: msgspec.Raw
    target: Any
    filtered_resps: Any
    metrics: list[str]
    doc_hash: str
    prompt_hash: str
    target_hash: str
    resps: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Not decoded, because it is not needed if a journal has the responses."""
    arguments: dict[str, Arguments] = {}
    filter: str = "none"
    repeats: dict[str, float] = {}
    """By metric of all answers to the document, its value."""

    def values(self) -> dict[str, Any]:
        """By metric, its value."""
        own = {metric: getattr(self, f"value_{place}") for place, metric in enumerate(self.metrics)}
        return {**own, **self.repeats}


class _DocumentAlone(msgspec.Struct):
    doc_id: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


_BEGINNING = re.compile(rb'\{"doc_id": ?(-?\d{1,18}),')
"""How Assay and lm-eval begin a line. No more is needed to note its place; the rest is checked when the line is
read."""
_document_alone = msgspec.json.Decoder(_DocumentAlone)


def place_lines(file: Path, places: PlacesByDocument) -> None:
    """Record where each document's lines begin.

    Raises:
        FileFormatError: there is no such file, or a line is damaged.
    """
    for number, offset, text in raw_lines(file):
        try:
            begins = _BEGINNING.match(text)
            places.add(int(begins[1]) if begins else _document_alone.decode(text).doc_id, offset)
        except (msgspec.DecodeError, RecursionError):
            line = parsed(text, file, f"line {number}")
            with reading(file, "a line's doc_id"):
                places.add(int(value_of(line, "doc_id")), offset)


class OpenedLines:
    """Reads single lines. The last file stays open, because the next line is usually in it too."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._lines: BinaryIO | None = None
        self._decoder = _decoder(())
        self._metrics: list[str] = []
        """The metrics that the decoder reads; lines of one task usually have the same."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines is not None:
            self._lines.close()

    def line(self, file: Path, offset: int) -> ScoredLine:
        """The line of `file` that begins at `offset`.

        Raises:
            FileFormatError: it is damaged.
            LookupError, TypeError, ValueError, AttributeError: a value is missing or not valid.
        """
        text = self._text(file, offset)
        try:
            line = self._decoder.decode(text)
            if line.metrics != self._metrics:
                self._decoder, self._metrics = _decoder(tuple(line.metrics)), line.metrics
                line = self._decoder.decode(text)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return _value_by_value(parsed(text, file, f"byte {offset}"))
        return line

    def _text(self, file: Path, offset: int) -> bytes:
        try:
            if self._lines is None or file is not self._file:  # to compare paths takes as long as to read a line
                self.__exit__()
                self._lines, self._file = file.open("rb", buffering=READ_AHEAD), file
            self._lines.seek(offset)
            return self._lines.readline()
        except OSError as error:
            raise FileFormatError(f"{file}, byte {offset}: cannot be read as a sample ({error})") from error


@functools.lru_cache(maxsize=64)
def _decoder(metrics: Sequence[str]) -> msgspec.json.Decoder[ScoredLine]:
    """A decoder for lines with these metrics.

    Raises:
        ValueError: a metric has the name of another key of the line.
    """
    return msgspec.json.Decoder(_line_with(metrics, rename={f"value_{n}": name for n, name in enumerate(metrics)}))


def _line_with(metrics: Sequence[str], rename: dict[str, str] | None = None) -> type[ScoredLine]:
    values = [(f"value_{place}", Any) for place in range(len(metrics))]
    kind = msgspec.defstruct("Line", values, bases=(ScoredLine,), rename=rename, frozen=True, kw_only=True)
    return cast("type[ScoredLine]", kind)


def _value_by_value(line: dict[str, msgspec.Raw]) -> ScoredLine:
    """Read a line that msgspec does not accept (NaN, lone surrogates), or that lm-eval did not write."""
    metrics = value_of(line, "metrics")
    return _line_with(metrics)(
        doc=line["doc"],
        target=value_of(line, "target"),
        filtered_resps=value_of(line, "filtered_resps"),
        metrics=metrics,
        doc_hash=value_of(line, "doc_hash"),
        prompt_hash=value_of(line, "prompt_hash"),
        target_hash=value_of(line, "target_hash"),
        resps=line.get("resps", msgspec.UNSET),
        arguments=_arguments(line),
        filter=filter_of(line),
        repeats=repeats_of(line),
        **{f"value_{place}": value_of(line, metric) for place, metric in enumerate(metrics)},
    )


def _arguments(line: dict[str, msgspec.Raw]) -> dict[str, Arguments]:
    written = value_of(line, "arguments") if "arguments" in line else {}
    return {
        name: Arguments(msgspec.Raw(json.dumps(each.get("arg_0", "")).encode()), each.get("arg_1"))
        for name, each in written.items()
    }
