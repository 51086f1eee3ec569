"""Writes per-instance statistics as a stream in HELM's layout, from a template for each metric name."""

from __future__ import annotations

import json
import math
from typing import IO, TYPE_CHECKING

from assay.helm.stats import CopyOnReadStats
from assay.helm.structs import dump_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.helm.stats import MetricName, PerInstanceStats, Stat

_CHUNK = 1 << 20
_CACHE_SIZE = 4096
_INFINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


class PerInstanceWriter:
    """Writes the elements of ``per_instance_stats.json``'s list, without its brackets.

    Statistics that are NaN are left out, as in HELM.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.count = 0
        self.names_left_out: set[str] = set()
        self._file = file
        self._templates: dict[int, _Template] = {}
        self._known: dict[int, str] = {}
        """Texts of Stats that occur often, by identity: instances share the objects, which do not change."""
        self._kept_alive: list[Stat] = []
        """Those Stats, since an id is unique only while its object exists."""

    def write(self, record: PerInstanceStats) -> None:
        """Write one instance's statistics."""
        known = self._known
        stats: Iterable[Stat] = record.stats
        if isinstance(stats, CopyOnReadStats):
            stats = stats.without_copying()
        kept = [text for stat in stats if (text := known.get(id(stat)) or self._stat(stat))]
        body = "[\n" + ",\n".join(kept) + "\n    ]" if kept else "[]"
        self._file.write(f"{',' if self.count else ''}\n{self._head(record)}{body}\n  }}".encode("ascii"))
        self.count += 1

    def _head(self, record: PerInstanceStats) -> str:
        """A record's text up to its statistics."""
        perturbation = ""
        if record.perturbation is not None:
            text = dump_json(record.perturbation.to_builtins()).decode().replace("\n", "\n    ")
            perturbation = f',\n    "perturbation": {text}'
        return (
            f'  {{\n    "instance_id": {json.dumps(record.instance_id)}{perturbation},\n'
            f'    "train_trial_index": {record.train_trial_index},\n    "stats": '
        )

    def _stat(self, stat: Stat) -> str:
        """A Stat's text; empty if it is left out."""
        if math.isnan(stat.sum):
            self.names_left_out.add(stat.name.name)
            return ""
        template = self._templates.get(id(stat.name))
        if template is None:
            template = self._templates[id(stat.name)] = _Template(stat.name)
        text = template.fill(stat)
        if isinstance(stat.sum, int) and len(self._known) < _CACHE_SIZE:
            self._known[id(stat)] = text
            self._kept_alive.append(stat)
        return text


class _Template:
    """The part of a Stat's text that depends only on its name."""

    def __init__(self, name: MetricName) -> None:
        self.name = name  # keeps the object alive: its id is the key
        text = _indent(dump_json(name.to_builtins()).decode(), 8).lstrip()
        self._head = f'      {{\n        "name": {text},\n        "count": '

    def fill(self, stat: Stat) -> str:
        """A Stat's text."""
        if stat.extras or stat.count == 0:
            return _indent(dump_json(stat.to_builtins()).decode(), 6)
        value, squared, variance = stat.sum, stat.sum_squared, stat.variance
        if value is stat.min is stat.max is stat.mean and type(squared) is float and math.isfinite(squared):
            # The usual case among those not cached: a single float.
            text = repr(value)
            return (
                f'{self._head}{stat.count},\n        "sum": {text},\n        "sum_squared": {squared!r},\n'
                f'        "min": {text},\n        "max": {text},\n        "mean": {text},\n'
                f'        "variance": {variance!r},\n        "stddev": {stat.stddev!r}\n      }}'
            )
        total = _number(stat.sum)
        low = total if stat.min is stat.sum else _number(stat.min)
        high = low if stat.max is stat.min else _number(stat.max)
        mean = low if stat.mean is stat.min else _number(stat.mean)
        return (
            f'{self._head}{stat.count},\n        "sum": {total},\n        "sum_squared": {_number(stat.sum_squared)},\n'
            f'        "min": {low},\n        "max": {high},\n        "mean": {mean},\n'
            f'        "variance": {_number(stat.variance)},\n        "stddev": {_number(stat.stddev)}\n      }}'
        )


def write_list(file: IO[bytes], parts: Iterable[IO[bytes]]) -> None:
    """Join the files of several `PerInstanceWriter` objects into one JSON list."""
    file.write(b"[")
    is_empty = True
    for part in parts:
        part.seek(0)
        chunk = part.read(_CHUNK)
        if chunk and not is_empty:
            file.write(b",")
        while chunk:
            is_empty = False
            file.write(chunk)
            chunk = part.read(_CHUNK)
    file.write(b"]" if is_empty else b"\n]")


def _indent(text: str, width: int) -> str:
    """Indent every line of a record; its strings contain no line breaks."""
    pad = " " * width
    return pad + text.replace("\n", "\n" + pad)


def _number(value: int | float | None) -> str:
    text = int.__repr__(value) if isinstance(value, int) else float.__repr__(value or 0.0)
    return _INFINITE.get(text, text)
