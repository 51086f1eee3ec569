"""The records of a journal: their schema, and its encoding as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from assay.errors import JournalVersionError
from assay.types import Response  # noqa: TC001 - msgspec resolves the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION = 1
"""Increased if older readers could misread a record; not for a new kind of record or a new optional field."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """Written whenever a process opens the journal for writing: at the start and at every resumption."""

    version: int
    """The schema version of what follows."""
    fingerprint: str
    """Identifies the run: runs with equal fingerprints send the same requests to the same model."""
    specification: dict[str, Any]
    assay: str
    """Assay's version."""
    time: float
    """Seconds since the epoch, as in every record."""
    replicas: tuple[str, ...] = ()
    """The run's fingerprints for its further endpoints. Any of them finds this journal."""


class ResponseRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="response"):
    """A request's identity and its response. The key, a hash, stands for the request's body."""

    task: str
    doc_id: int
    index: int
    repeat: int
    key: str
    response: Response
    time: float


class Probed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="probed"):
    """The probe's report on the server before the run."""

    report: dict[str, Any]
    time: float


class Known(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="known"):
    """What is known of the run's servers. A resumed run compares it with what they are then."""

    servers: dict[str, Any]
    """By address."""
    time: float


class Finalised(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="finalised"):
    """Results are about to be written under this time stamp."""

    date_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z.-]{0,60}\Z")]
    """Becomes part of file names, hence the pattern."""
    time: float


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="finished"):
    """The results are written."""

    failed: int
    """Samples without a response. Zero: the run is finished for good."""
    time: float


HEADER_BEGINNING = b'{"kind":"header",'
"""Every header begins so, and no other record does."""

Record = Header | Probed | Known | ResponseRecord | Finalised | Finished

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode a record as UTF-8 JSON on one line."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:
        # A server sent a lone surrogate ("\ud800" in its JSON), which UTF-8 cannot represent: escape it.
        return json.dumps(msgspec.to_builtins(record), separators=(",", ":")).encode("ascii")


def decode_record(payload: bytes) -> Record | None:
    """Decode a payload with a valid checksum; None if this version does not know that kind of record.

    Raises:
        JournalVersionError: The record is the header of a later schema version.
    """
    record: Record
    try:
        record = _decoder.decode(payload)
    except msgspec.ValidationError:
        _refuse_later_version(payload)
        return None
    except RecursionError:
        return None
    except msgspec.DecodeError:
        try:
            record = msgspec.convert(json.loads(payload), Record)
        except (ValueError, RecursionError, msgspec.ValidationError):
            return None
    if isinstance(record, Header) and record.version > SCHEMA_VERSION:
        raise _later_version(record.version)
    return record


def task_names(specification: Mapping[str, Any]) -> list[Any]:
    """The tasks that a header's specification names; empty if it names none."""
    tasks = specification.get("tasks")
    return list(tasks) if isinstance(tasks, list | tuple) else []


class _AnyHeader(msgspec.Struct, tag_field="kind", tag="header"):
    """The part of a header that is the same in every schema version."""

    version: int


def _refuse_later_version(payload: bytes) -> None:
    try:
        header = msgspec.json.decode(payload, type=_AnyHeader)
    except (msgspec.DecodeError, RecursionError):
        return
    if header.version > SCHEMA_VERSION:
        raise _later_version(header.version)


def _later_version(version: int) -> JournalVersionError:
    return JournalVersionError(
        f"it has schema version {version}, this Assay reads up to version {SCHEMA_VERSION}: upgrade Assay to use it"
    )
