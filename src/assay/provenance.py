"""Where a run's numbers come from: specification, server, versions, data."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec

from assay._version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from assay.models.server_info import ServerInfo
    from assay.tasks.library import LoadedTasks
    from assay.types import Specification

_RECORDED_PACKAGES = ("lm_eval", "datasets", "httptools", "jinja2", "numpy")


def provenance(specification: Specification, server: ServerInfo, loaded: LoadedTasks, journal: Path) -> dict[str, Any]:
    """Plain data that says what would have to be the same for the numbers to be comparable."""
    record: dict[str, Any] = msgspec.to_builtins(
        {
            "specification": specification,
            "server": server,
            "data": loaded.data_files,
            "versions": {
                "assay": __version__,
                "python": platform.python_version(),
                **{package: version(package) for package in _RECORDED_PACKAGES},
            },
            "journal": journal.name,
        }
    )
    return record
