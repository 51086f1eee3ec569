"""Writes per-instance statistics in HELM's layout as they come, from a template for each metric name."""

from __future__ import annotations

import math
from typing import IO, TYPE_CHECKING

from assay.helm.structs import dump_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.helm.stats import MetricName, PerInstanceStats, Stat

_CHUNK = 1 << 20
_INFINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


class PerInstanceWriter:
    """Writes the elements of ``per_instance_stats.json``'s list, without its brackets.

    Statistics that are not a number are left out, as HELM does.
    """

    def __init__(self, file: IO[str]) -> None:
        self.count = 0
        self.names_left_out: set[str] = set()
        self._file = file
        self._heads: dict[int, tuple[MetricName, str]] = {}

    def write(self, record: PerInstanceStats) -> None:
        """Write one instance's statistics."""
        kept = []
        for stat in record.stats:
            if math.isnan(stat.sum):
                self.names_left_out.add(stat.name.name)
            else:
                kept.append(self._stat(stat))
        head = dump_json({**record.to_builtins(), "stats": []}).decode().removesuffix("[]\n}")
        body = "[\n" + ",\n".join(kept) + "\n    ]" if kept else "[]"
        self._file.write((",\n" if self.count else "\n") + _indent(head, 2) + body + "\n  }")
        self.count += 1

    def _stat(self, stat: Stat) -> str:
        head = self._head(stat.name)
        if stat.count == 0 or stat.extras:
            return _indent(dump_json(stat.to_builtins()).decode(), 6)
        total = _number(stat.sum)
        single = stat.count == 1
        low = total if single and stat.min == stat.sum and type(stat.min) is type(stat.sum) else _number(stat.min)
        high = low if stat.max is stat.min else _number(stat.max)
        return (
            f'{head}{stat.count},\n        "sum": {total},\n        "sum_squared": {_number(stat.sum_squared)},\n'
            f'        "min": {low},\n        "max": {high},\n        "mean": {_number(stat.mean)},\n'
            f'        "variance": {_number(stat.variance)},\n        "stddev": {_number(stat.stddev)}\n      }}'
        )

    def _head(self, name: MetricName) -> str:
        """A Stat's text as far as its count; names are shared objects, so their identity is key enough."""
        known = self._heads.get(id(name))
        if known is None:
            text = _indent(dump_json(name.to_builtins()).decode(), 8).lstrip()
            known = self._heads[id(name)] = (name, f'      {{\n        "name": {text},\n        "count": ')
        return known[1]


def write_list(file: IO[str], parts: Iterable[IO[str]]) -> None:
    """Join what several `PerInstanceWriter` wrote into one JSON list."""
    file.write("[")
    is_empty = True
    for part in parts:
        part.seek(0)
        chunk = part.read(_CHUNK)
        if chunk and not is_empty:
            file.write(",")
        while chunk:
            is_empty = False
            file.write(chunk)
            chunk = part.read(_CHUNK)
    file.write("]" if is_empty else "\n]")


def _indent(text: str, width: int) -> str:
    """Shift every line of a record; its strings hold no line breaks."""
    pad = " " * width
    return pad + text.replace("\n", "\n" + pad)


def _number(value: int | float | None) -> str:
    text = int.__repr__(value) if isinstance(value, int) else float.__repr__(value or 0.0)
    return _INFINITE.get(text, text)
