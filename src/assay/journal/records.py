"""What a journal's frames say: the schema, and its encoding as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from assay.errors import JournalVersionError
from assay.types import Response  # noqa: TC001 - msgspec resolves the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION = 1
"""Raised when a reader of the version before could misread a record; not for a new kind or a new optional field."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """Written each time that a process opens the journal for writing: first of all, and at every resumption."""

    version: int
    """The schema version of what follows."""
    fingerprint: str
    """Identifies the run: equal fingerprints ask the same questions of the same model."""
    specification: dict[str, Any]
    assay: str
    """Assay's version."""
    time: float
    """Seconds since the epoch, as in every record."""
    replicas: tuple[str, ...] = ()
    """The fingerprints of the same run at its further endpoints, any of which finds this journal."""


class ResponseRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="response"):
    """A request's identity and what came of it. The request's body is not recorded: its key stands for it."""

    task: str
    doc_id: int
    index: int
    repeat: int
    key: str
    response: Response
    time: float


class Probed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="probed"):
    """What the server was seen to do before the run."""

    report: dict[str, Any]
    time: float


class Known(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="known"):
    """What is known of the run's servers, by which a run that goes on sees whether they are still the same."""

    servers: dict[str, Any]
    """By address."""
    time: float


class Finalised(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="finalised"):
    """Results are about to be written under this time stamp."""

    date_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z.-]{0,60}\Z")]
    """It becomes part of files' names, so that nothing else may be in it."""
    time: float


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="finished"):
    """The results are written."""

    failed: int
    """Samples without a response. Zero: the run is finished for good."""
    time: float


HEADER_BEGINNING = b'{"kind":"header",'
"""How every header begins, and no other record."""

Record = Header | Probed | Known | ResponseRecord | Finalised | Finished

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """The record as UTF-8 JSON on one line."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:
        # A server sent a lone surrogate ("\ud800" in its JSON). UTF-8 cannot hold it, an escape can.
        return json.dumps(msgspec.to_builtins(record), separators=(",", ":")).encode("ascii")


def decode_record(payload: bytes) -> Record | None:
    """The record in a payload whose checksum holds; None if it is of a kind that this version does not know.

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
    """The tasks that a header's specification names; none where it says something else."""
    tasks = specification.get("tasks")
    return list(tasks) if isinstance(tasks, list | tuple) else []


class _AnyHeader(msgspec.Struct, tag_field="kind", tag="header"):
    """What every version's header has, also one whose other fields have changed."""

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
