"""Frozen records that read and write HELM's JSON without losing a byte of it.

A `HelmStruct` has HELM's field names in HELM's order. HELM drops ``None`` at every level of its records (but not
inside free-form dictionaries) and writes every other default. A file of another HELM version may have more fields or
lack some; `HelmStruct.extras` records the difference, so that writing the record gives the file that was read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import sys
import types
import typing
from enum import Enum
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, Union

import msgspec

from assay.errors import FileFormatError

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that msgspec decodes as one: it fits into 64 bits."""
Number = Int64 | float
"""JSON distinguishes ``0`` from ``0.0``, so integers stay integers. They may be as large as a float."""

Extras = tuple[tuple[str, Any], ...]
"""A record's unknown fields in the file's order; ``UNSET`` marks a default that the file leaves out."""


class _DataclassFields:
    """Lets Python's ``dataclasses.replace`` and ``asdict`` take records, as programs written for HELM do.

    ``extras`` is one of the fields only where a record has some, so that ``replace`` keeps them.
    """

    def __get__(self, record: HelmStruct | None, kind: type[HelmStruct]) -> dict[str, dataclasses.Field[Any]]:
        return _dataclass_fields(kind, record is not None and record.extras is not None)


class HelmStruct(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True, rename={"extras": "$extras"}
):
    """Base of every record of HELM's data model.

    Records are trees, so the garbage collector need not track them; a run has tens of millions.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]] = _DataclassFields()  # type: ignore[assignment]

    extras: Extras | None = None

    @classmethod
    def from_json(cls, text: bytes | str, source: str = "JSON", offset: int = 0) -> Self:
        """Read one record.

        Args:
            text: The record's JSON.
            source: Names the file, for error messages.
            offset: The byte of the file at which the text begins.

        Raises:
            FileFormatError: The text is not JSON, or not a record of this class.
        """
        raw = text.encode() if isinstance(text, str) else text
        try:
            record: Self = _decoder(cls).decode(raw)
            if (required := _required_decoder(cls)) is not None:
                required.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return cls.from_builtins(parse_json(raw, source, offset), source)
        return record

    @classmethod
    def from_builtins(cls, value: Any, source: str = "JSON") -> Self:
        """Read one record from what `json.loads` gives, keeping unknown keys.

        Raises:
            FileFormatError: The value is not a record of this class.
        """
        return _build(cls, value, source)

    def to_builtins(self) -> dict[str, Any]:
        """The record as HELM writes it: dictionaries in field order without its ``None`` fields."""
        record: dict[str, Any] = {}
        for name, depth in _layout(type(self)).writing:
            value = getattr(self, name)
            if value is None:
                continue
            record[name] = _to_builtins(value, depth)
        for key, value in self.extras or ():
            if value is msgspec.UNSET:
                record.pop(key, None)
            else:
                record[key] = value
        return record

    def to_json(self) -> bytes:
        """The record's text in HELM's layout: ASCII, two spaces of indentation."""
        return dump_json(self.to_builtins())


def keep_as_lists(record: HelmStruct, *names: str) -> None:
    """Turn iterables that a caller gave for a record's fields into lists: a generator can be read only once."""
    for name in names:
        given = getattr(record, name)
        if given is not None and not isinstance(given, list):
            msgspec.structs.force_setattr(record, name, list(given))


RecordT = TypeVar("RecordT", bound=HelmStruct)

_PLAIN = -1
_LITERALS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_PARTIAL_NUMBER = re.compile(r"\.|[eE][+-]?")
"""What may follow a number's digits in a text that is cut off within the number."""
_LONGEST_ESCAPE = 7


def _to_builtins(value: Any, depth: int) -> Any:
    if depth == _PLAIN:
        return value
    if depth == 0:
        return value.to_builtins()
    return [_to_builtins(item, depth - 1) for item in value]


def parse_json(raw: bytes, source: str, offset: int = 0) -> Any:
    """Parse JSON in which NaN and Infinity are allowed, as HELM writes them.

    Args:
        raw: The text.
        source: Names the file, for error messages.
        offset: The byte of the file at which the text begins.

    Raises:
        FileFormatError: The text is damaged; the message names the byte.
    """
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(raw)
    try:
        return json.loads(raw.decode())
    except UnicodeDecodeError as error:
        byte = offset + error.start
        raise FileFormatError(f"{source} is not UTF-8 at byte {byte}; it is damaged or not JSON") from None
    except json.JSONDecodeError as error:
        byte = offset + len(error.doc[: error.pos].encode())
        what = "is incomplete: it was cut off" if _ends_early(error) else "is damaged"
        raise FileFormatError(f"{source} {what} at byte {byte} ({error.msg})") from None
    except ValueError as error:
        raise FileFormatError(f"{source} holds a number that is too long: {error}") from None
    except RecursionError:
        raise FileFormatError(f"{source} is nested too deeply to be HELM's") from None


class Extent(Enum):
    """Where a JSON value ends, compared with the text that was cut out of a file for it."""

    WHOLE = "where the text ends"
    LONGER = "after the text's end"
    SHORTER = "before the text's end"
    UNKNOWN = "the text is damaged before it ends"


def extent_of(raw: bytes) -> Extent:
    """Where the JSON value ends with which a text begins."""
    try:
        json.loads(raw.decode())
    except json.JSONDecodeError as error:
        if _ends_early(error):
            return Extent.LONGER
        return Extent.SHORTER if error.msg == "Extra data" else Extent.UNKNOWN
    except UnicodeDecodeError as error:
        return Extent.LONGER if error.reason == "unexpected end of data" else Extent.UNKNOWN
    except (ValueError, RecursionError):
        return Extent.UNKNOWN
    return Extent.WHOLE


def _ends_early(error: json.JSONDecodeError) -> bool:
    rest = error.doc[error.pos :]
    if not rest.strip() or error.msg.startswith("Unterminated string"):
        return True
    if error.msg.startswith("Invalid \\"):
        return len(rest) < _LONGEST_ESCAPE and '"' not in rest
    return _PARTIAL_NUMBER.fullmatch(rest) is not None or any(word.startswith(rest) for word in _LITERALS)


def dump_json(value: Any) -> bytes:
    """The text that ``json.dumps(value, indent=2)`` gives, several times faster. Numbers may be numpy's."""
    compact = json.dumps(value, default=plain_value).encode()
    try:
        return msgspec.json.format(compact, indent=2)
    except msgspec.DecodeError:  # NaN and Infinity, which are not JSON but which Python writes
        return json.dumps(value, indent=2, default=plain_value).encode()


def plain_value(value: Any) -> Any:
    """Convert NumPy's numbers and arrays, which computed records often contain, to Python's.

    Raises:
        TypeError: The value is neither.
    """
    if not hasattr(value, "tolist"):
        raise TypeError(f"{type(value).__name__} {value!r:.60} cannot be written as JSON")
    return value.tolist()


def plain_number(value: Any) -> int | float:
    """A number as Python's int or float; booleans become 0 or 1, integers beyond 64 bits become floats.

    Raises:
        TypeError: The value is not a number.
    """
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else _as_float(value)
    if isinstance(value, float):
        return float(value)
    number = plain_value(value)
    if not isinstance(number, int | float):
        raise TypeError(f"{value!r:.60} is not a number")
    return plain_number(number)


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


class _Layout(NamedTuple):
    """How one record type is read and written."""

    writing: tuple[tuple[str, int], ...]
    """Field names in order, each with the depth of lists around its records, or ``_PLAIN``."""
    reading: dict[str, tuple[type[HelmStruct] | None, int, Any]]
    """Field name to (record type, depth of lists around it, annotated type)."""
    defaulted: tuple[str, ...]
    """Fields that HELM always writes although they have a default."""
    required: tuple[str, ...]


@cache
def _layout(cls: type[HelmStruct]) -> _Layout:
    writing: list[tuple[str, int]] = []
    reading: dict[str, tuple[type[HelmStruct] | None, int, Any]] = {}
    defaulted: list[str] = []
    required: list[str] = []
    for field in msgspec.structs.fields(cls):
        if field.name == "extras":
            continue
        record, depth = _record_inside(field.type)
        writing.append((field.name, _PLAIN if record is None else depth))
        reading[field.name] = (record, depth, field.type)
        if field.required:
            required.append(field.name)
        elif field.default is not None:
            defaulted.append(field.name)
    return _Layout(tuple(writing), reading, tuple(defaulted), tuple(required))


def _record_inside(annotation: Any) -> tuple[type[HelmStruct] | None, int]:
    if typing.get_origin(annotation) in (Union, types.UnionType):
        for option in typing.get_args(annotation):
            record, depth = _record_inside(option)
            if record is not None:
                return record, depth
    if typing.get_origin(annotation) is list:
        record, depth = _record_inside(typing.get_args(annotation)[0])
        return record, depth + 1
    if isinstance(annotation, type) and issubclass(annotation, HelmStruct):
        return annotation, 0
    return None, 0


@cache
def _dataclass_fields(cls: type[HelmStruct], with_extras: bool) -> dict[str, dataclasses.Field[Any]]:
    known = [(field.name, field.type) for field in msgspec.structs.fields(cls) if with_extras or field.name != "extras"]
    return {field.name: field for field in dataclasses.fields(dataclasses.make_dataclass(cls.__name__, known))}


@cache
def _decoder(cls: type[RecordT]) -> msgspec.json.Decoder[RecordT]:
    return msgspec.json.Decoder(cls)


@cache
def _required_decoder(cls: type[HelmStruct]) -> msgspec.json.Decoder[Any] | None:
    skeleton = _skeleton(cls)
    return None if skeleton is None else msgspec.json.Decoder(skeleton)


@cache
def _skeleton(cls: type[HelmStruct]) -> type[msgspec.Struct] | None:
    """A type that decodes only if no default is left out anywhere: a cheap check."""
    layout = _layout(cls)
    fields: list[Any] = [(name, msgspec.Raw) for name in layout.defaulted if layout.reading[name][0] is None]
    for name, (record, depth, _) in layout.reading.items():
        inside = None if record is None else _skeleton(record)
        if inside is None:
            continue
        wrapped: Any = inside
        for _level in range(depth):
            wrapped = list[wrapped]
        fields.append((name, wrapped) if name in layout.defaulted else (name, wrapped | None, None))
    return msgspec.defstruct(f"_{cls.__name__}Skeleton", fields, kw_only=True) if fields else None


def _build(cls: type[RecordT], value: Any, source: str) -> RecordT:
    if not isinstance(value, dict):
        raise FileFormatError(f"{source}: expected {cls.__name__}, an object, but found {_kind(value)}")
    layout = _layout(cls)
    known: dict[str, Any] = {}
    extras: list[tuple[str, Any]] = []
    for key, item in value.items():
        field = layout.reading.get(key)
        if field is None:
            extras.append((key, item))
        else:
            known[key] = _build_field(field, item, f"{source}.{key}")
    for name in layout.required:
        if name not in value:
            raise FileFormatError(f"{source}: {cls.__name__} has no {name!r}")
    extras.extend((name, msgspec.UNSET) for name in layout.defaulted if name not in value)
    return cls(**known, extras=tuple(extras) or None)


def _build_field(field: tuple[type[HelmStruct] | None, int, Any], value: Any, source: str) -> Any:
    record, depth, annotation = field
    if record is None or value is None:
        return _convert(annotation, value, source)
    return _build_nested(record, depth, value, source)


def _build_nested(record: type[HelmStruct], depth: int, value: Any, source: str) -> Any:
    if depth == 0:
        return _build(record, value, source)
    if not isinstance(value, list):
        raise FileFormatError(f"{source}: expected a list of {record.__name__}, but found {_kind(value)}")
    if depth == 1 and not _layout(record).defaulted:
        try:
            return msgspec.convert(value, list[record])  # type: ignore[valid-type]
        except (msgspec.ValidationError, UnicodeEncodeError):
            pass
    return [_build_nested(record, depth - 1, item, f"{source}[{index}]") for index, item in enumerate(value)]


def _convert(annotation: Any, value: Any, source: str) -> Any:
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        if type(value) is int and abs(value) <= sys.float_info.max and float in typing.get_args(annotation):
            return value
        raise FileFormatError(f"{source}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except UnicodeEncodeError:  # a lone surrogate where no string is expected
        raise FileFormatError(f"{source}: unexpected {_kind(value).removeprefix('a ')}") from None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
