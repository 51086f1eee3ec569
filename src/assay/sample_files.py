"""lm-eval's samples files, line by line: one line a document a filter, each value's JSON parsed only when wanted."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from assay.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SampleLine = dict[str, msgspec.Raw]
"""A line: the JSON of each key."""

_STAMP = re.compile(r"_(\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl?$")
_decoder = msgspec.json.Decoder(SampleLine)


class PlacedLine(NamedTuple):
    """A line and where in its file it begins."""

    offset: int
    """In bytes."""
    line: SampleLine


def time_stamp(file: Path) -> str | None:
    """The time in the name of a results or samples file; None where there is none."""
    found = _STAMP.search(file.name)
    return found.group(1) if found else None


def samples_file_of(results_file: Path, task: str) -> Path:
    """The samples file of one task that belongs to a results file."""
    stamp = time_stamp(results_file)
    return results_file.with_name(f"samples_{task}_{stamp}.jsonl" if stamp else f"samples_{task}.jsonl")


def task_of(samples_file: Path) -> str:
    """The task that a samples file is named after."""
    return _STAMP.sub("", samples_file.name).removeprefix("samples_").removesuffix(".jsonl")


def read_lines(file: Path) -> Iterator[PlacedLine]:
    """A samples file line by line.

    Raises:
        FileFormatError: there is no such file, or a line is damaged.
    """
    number = offset = 0
    try:
        with file.open("rb") as lines:
            for text in lines:
                number += 1
                yield PlacedLine(offset, _parsed(text))
                offset += len(text)
    except FileNotFoundError:
        raise FileFormatError(
            f"there is no samples file {file}: lm-eval writes it only with --log_samples, and runs are compared by it"
        ) from None
    except (OSError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{file}, line {number}: cannot be read as a sample ({error})") from error


def line_at(file: Path, offset: int) -> SampleLine:
    """The line that begins at `offset`.

    Raises:
        FileFormatError: it is damaged.
    """
    try:
        with file.open("rb") as lines:
            lines.seek(offset)
            return _parsed(lines.readline())
    except (OSError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{file}, byte {offset}: cannot be read as a sample ({error})") from error


def value_of(line: Mapping[str, msgspec.Raw], key: str) -> Any:
    """The value of a key, as plain data.

    Raises:
        KeyError: the line has no such key.
    """
    return plain(line[key])


def plain(text: msgspec.Raw | str) -> Any:
    """JSON as plain data, also such that only the standard library takes: NaN, infinities, lone surrogates."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text if isinstance(text, str) else bytes(text))


def filter_of(line: Mapping[str, msgspec.Raw]) -> str:
    """The filter that the line is about."""
    return str(value_of(line, "filter")) if "filter" in line else "none"


def first_text(value: Any) -> str:
    """The first of nested lists of answers, as text."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parsed(text: bytes) -> SampleLine:
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:  # NaN and infinities, which msgspec does not take
        return {key: msgspec.Raw(json.dumps(value).encode()) for key, value in json.loads(text).items()}
