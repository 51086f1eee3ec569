"""Reads a run's statistics, and finds out what would be lost if others replaced them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import FileFormatError
from assay.helm.stats import Stat
from assay.helm.structs import dump_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

STATS = "stats.json"
PER_INSTANCE_STATS = "per_instance_stats.json"

_RECORD = b'\n    "instance_id": '
_VALUE = b'\n        "name": {'
"""The beginning of a record, and of a statistic in it, in HELM's layout; strings contain no line breaks."""
_CHUNK = 1 << 20
_SIZE = "num_instances"
_PLATT = ("platt_coef", "platt_intercept")
"""Exist only if some answers are right and some are wrong."""


def lost_statistics(old: Path, new: Path) -> str | None:
    """What is lost if one directory's statistics replace another's, or ``None`` if nothing is.

    A statistic with a value is lost if the new ones lack it, or have it for fewer trials or fewer instances.

    Args:
        old: The directory whose statistics would be replaced.
        new: The directory with the new statistics.
    """
    try:
        old_stats = _stats(old / STATS)
        lost = _fewer_stats(old_stats, _stats(new / STATS) if old_stats else {})
        return lost or _fewer_values(old / PER_INSTANCE_STATS, new / PER_INSTANCE_STATS)
    except FileFormatError as error:
        return f"statistics that cannot be counted: {error}"


def read_stats(run: str | Path) -> list[Stat]:
    """Read the statistics of a run.

    Args:
        run: The run's directory, or its ``stats.json``.

    Raises:
        FileFormatError: The file is missing, damaged, or not a list of statistics.
    """
    path = Path(run) / STATS if Path(run).is_dir() else Path(run)
    value = parse_json(read_file(path), str(path))
    if not isinstance(value, list):
        raise FileFormatError(f"{path} holds no list of statistics")
    return [Stat.from_builtins(item, f"{path}: [{index}]") for index, item in enumerate(value)]


def _stats(path: Path) -> dict[bytes, Stat]:
    if not _exists(path) or not read_file(path).strip():
        return {}
    return {
        dump_json(stat.name.to_builtins()): stat
        for stat in read_stats(path)
        if stat.count and stat.name.name not in _PLATT
    }


def _fewer_stats(old: Mapping[bytes, Stat], new: Mapping[bytes, Stat]) -> str | None:
    for key, stat in old.items():
        name, found = stat.name.name, new.get(key)
        if found is None:
            return f"{name} (it has {len(old)} statistics, the new ones are {len(new)})"
        if found.count < stat.count:
            return f"{name} over {stat.count} trials (the new one has {found.count})"
        if name == _SIZE and (found.mean or 0) < (stat.mean or 0):
            return f"the statistics of {stat.mean:g} instances (the new ones have {found.mean or 0:g})"
    return None


class _Values(NamedTuple):
    records: int
    values: int
    """Statistics in all records."""


def _fewer_values(old: Path, new: Path) -> str | None:
    before = _count(old)
    now = _count(new) if before.records else before
    if now.records < before.records:
        return f"the statistics of {before.records} instances (the new ones have {now.records})"
    if now.values < before.values:
        return f"{before.values} values of instances (the new ones are {now.values})"
    return None


def _count(path: Path) -> _Values:
    """Count records and statistics; a file in HELM's layout need not be parsed for that."""
    if not _exists(path):
        return _Values(0, 0)
    records = values = 0
    kept = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            records += (kept[1 - len(_RECORD) :] + chunk).count(_RECORD)
            values += (kept[1 - len(_VALUE) :] + chunk).count(_VALUE)
            kept = chunk if len(chunk) >= len(_RECORD) else kept + chunk
    return _Values(records, values) if records else _count_in_another_layout(path)


def _count_in_another_layout(path: Path) -> _Values:
    raw = read_file(path)
    found = parse_json(raw, str(path)) if raw.strip() else []
    if not isinstance(found, list):
        raise FileFormatError(f"{path} holds no list of statistics")
    lists = [record.get("stats") for record in found if isinstance(record, dict)]
    return _Values(len(lists), sum(len(stats) for stats in lists if isinstance(stats, list)))


def _exists(path: Path) -> bool:
    if path.exists() and not path.is_file():
        raise FileFormatError(f"{path} is not a file")
    return path.exists()


def read_file(path: Path) -> bytes:
    """Read a file of a run.

    Raises:
        FileFormatError: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read: {error.strerror}") from None
