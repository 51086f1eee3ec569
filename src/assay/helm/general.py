"""Functions of HELM's ``helm.common.general`` that programs use to write a run's files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._util.storage import write_error
from assay.errors import OutputError, SpecificationError
from assay.helm.structs import HelmStruct, plain_value

if TYPE_CHECKING:
    import os


def asdict_without_nones(record: HelmStruct) -> dict[str, Any]:
    """A record as HELM writes it: a new dictionary in field order, without fields that are ``None``.

    Args:
        record: one of HELM's records: a `RunSpec`, a `Scenario`, a `Stat`, …

    Raises:
        SpecificationError: it is something else.
    """
    if not isinstance(record, HelmStruct):
        raise SpecificationError(f"expected one of HELM's records, but got {type(record).__name__} {record!r:.60}")
    own: dict[str, Any] = _own(record.to_builtins())
    return own


def write(file_path: str | os.PathLike[str], content: str) -> None:
    """Write a text file.

    Args:
        file_path: the file; its directory has to exist.
        content: the text.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        raw = content.encode()  # may raise, so before the old file is overwritten
        Path(file_path).write_bytes(raw)
    except OSError as error:
        raise write_error(f"{file_path} cannot be written", error) from None
    except ValueError as error:  # a lone surrogate
        raise OutputError(f"{file_path} cannot be written: {error}") from None


def _own(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _own(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_own(item) for item in value]
    return plain_value(value) if hasattr(value, "tolist") else value
