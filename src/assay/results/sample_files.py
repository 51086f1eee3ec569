"""Reads lm-eval's samples files line by line. Each line is a document under a filter; values are parsed on demand."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from assay._util.json_text import plain
from assay._util.paths import why_unreadable
from assay.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SampleLine = dict[str, msgspec.Raw]
"""A line of a samples file: by key, its JSON."""

_STAMP = re.compile(r"_(\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl?$")
_LONGEST_TASK_NAME = 200
"""Bytes. File systems allow names of 255, and the name of a samples file also has a time in it."""
_NAME_SHOWN = 60
READ_AHEAD = 2**18
"""Bytes read of a samples file at once: a line has several kilobytes, mostly of its prompt."""
_decoder = msgspec.json.Decoder(SampleLine)


class PlacedText(NamedTuple):
    """A line's JSON and its place in the file."""

    number: int
    """From 1."""
    offset: int
    """In bytes."""
    text: bytes


def time_stamp(file: Path) -> str | None:
    """The time in the name of a results or samples file; None if there is none."""
    found = _STAMP.search(file.name)
    return found.group(1) if found else None


def samples_file_of(results_file: Path, task: str) -> Path:
    """The samples file of one task, beside a results file.

    Raises:
        FileFormatError: the task's name cannot be part of a file's name.
    """
    if not may_name_file(task):
        raise FileFormatError(
            f"{results_file}: task {task[:_NAME_SHOWN]!r} has no samples file: its name is no file name"
        )
    stamp = time_stamp(results_file)
    return results_file.with_name(f"samples_{task}_{stamp}.jsonl" if stamp else f"samples_{task}.jsonl")


def may_name_file(task: str) -> bool:
    """Whether a samples file can be named after the task."""
    return "/" not in task and "\0" not in task and len(task.encode("utf-8", "replace")) <= _LONGEST_TASK_NAME


def task_of(samples_file: Path) -> str:
    """The task that a samples file is named after."""
    return _STAMP.sub("", samples_file.name).removeprefix("samples_").removesuffix(".jsonl")


def read_lines(file: Path) -> Iterator[SampleLine]:
    """A samples file line by line.

    Raises:
        FileFormatError: there is no such file, or a line is damaged.
    """
    return (parsed(text, file, f"line {number}") for number, _, text in raw_lines(file))


def raw_lines(file: Path) -> Iterator[PlacedText]:
    """A samples file's lines as bytes.

    Raises:
        FileFormatError: there is no such file, or a line is not UTF-8.
    """
    number = offset = 0
    try:
        with file.open("rb", buffering=READ_AHEAD) as lines:
            for text in lines:
                number += 1
                if not text.isascii():
                    text.decode()  # checked here, because values that are parsed on demand may be copied before
                yield PlacedText(number, offset, text)
                offset += len(text)
    except FileNotFoundError:
        raise FileFormatError(
            f"there is no samples file {file}: lm-eval writes it only with --log_samples, and runs are compared by it"
        ) from None
    except OSError as error:
        raise FileFormatError(f"cannot read the samples file {file}: {why_unreadable(error)}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{file}, line {number}: cannot be read as a sample ({error})") from error


def parsed(text: bytes, file: Path, which: str) -> SampleLine:
    """Split a line into keys and the JSON of their values.

    Args:
        text: the line.
        file: its file, for the message.
        which: its place in the file, for the message.

    Raises:
        FileFormatError: the line is damaged.
    """
    try:
        return _parsed(text)
    except (ValueError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{file}, {which}: cannot be read as a sample ({error})") from error


class reading:  # noqa: N801 - used as contextlib.suppress is; a generator takes three times as long, for every sample
    """Report errors in a line's values in a ``with`` block as errors of the file.

    Args:
        file: the samples file.
        which: the lines that are read, for the message.

    Raises:
        FileFormatError: a value is missing or not valid.
    """

    __slots__ = ("_file", "_which")

    def __init__(self, file: Path, which: str) -> None:
        self._file = file
        self._which = which

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, LookupError | TypeError | ValueError | AttributeError | OverflowError | RecursionError):
            raise FileFormatError(f"{self._file}, {self._which}: cannot be read as a sample ({error!r})") from error


def value_of(line: Mapping[str, msgspec.Raw], key: str) -> Any:
    """The value of a key, as plain data.

    Raises:
        KeyError: the line has no such key.
    """
    return plain(line[key])


def filter_of(line: Mapping[str, msgspec.Raw]) -> str:
    """The filter that the line is about."""
    return str(value_of(line, "filter")) if "filter" in line else "none"


def repeats_of(line: Mapping[str, msgspec.Raw]) -> dict[str, float]:
    """The line's metrics of all answers to the document, which only Assay writes."""
    return dict(value_of(line, "repeats")) if "repeats" in line and "repeats" not in value_of(line, "metrics") else {}


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
