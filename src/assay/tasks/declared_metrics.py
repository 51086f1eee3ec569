"""The metrics that tasks declare in their YAML, known before their data is read."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from assay.errors import TaskConfigError
from assay.tasks.index import TaskKind
from assay.tasks.yaml_headers import HeaderReader, whole_file
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.tasks.index import TaskEntry

_OWN_SCORING = ("process_results", "class")
"""Keys of tasks whose own code decides what is reported."""
_OWN_NAMES = frozenset({"pass_at_k"})
"""Metrics that are reported under other names."""


def declared_metrics(entries: Sequence[TaskEntry]) -> Mapping[str, list[str]] | None:
    """The metric keys of every task; None unless the YAML of each names them all.

    Args:
        entries: what was asked for.
    """
    reader = HeaderReader(whole_file)
    declared = {entry.name: _declared(entry, reader) for entry in entries}
    known = {name: keys for name, keys in declared.items() if keys is not None}
    return known if len(known) == len(entries) else None


def _declared(entry: TaskEntry, reader: HeaderReader) -> list[str] | None:
    if entry.kind is not TaskKind.TASK or entry.path is None:
        return None
    config: dict[str, Any] = {}
    with contextlib.suppress(TaskConfigError):  # loading the task reports it in full
        config = reader.read(entry.path)
    metrics = _named(config.get("metric_list"), "metric")
    filters = _named(config.get("filter_list") or [{"name": "none"}], "name")
    if metrics is None or filters is None or any(key in config for key in _OWN_SCORING):
        return None
    if any("." in metric or metric in _OWN_NAMES for metric in metrics):  # a function of the task's own
        return None
    return [str(MetricKey(metric, chosen)) for chosen in filters for metric in metrics]


def _named(listed: Any, key: str) -> list[str] | None:
    """Each entry's value for a key; None where one has no such value."""
    if not isinstance(listed, list):
        return None
    names: list[Any] = [one.get(key) if isinstance(one, dict) else None for one in listed]
    return names if all(isinstance(name, str) for name in names) else None
