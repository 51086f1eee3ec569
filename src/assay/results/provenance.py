"""Collects the provenance of a run: specification, server, versions, data."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import msgspec

from assay._util.versions import installed_version
from assay._version import __version__
from assay.results.document import Provenance
from assay.specification import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from assay.client.server_info import ServerInfo
    from assay.tasks.library import LoadedTasks
    from assay.types import Specification

_RECORDED_PACKAGES = ("lm_eval", "datasets", "httptools", "jinja2", "numpy")


def provenance(specification: Specification, server: ServerInfo, loaded: LoadedTasks, journal: Path) -> Provenance:
    """Everything that must be the same for the numbers of two runs to be comparable."""
    return Provenance(
        specification=msgspec.to_builtins(recorded(specification)),
        server=server,
        data=loaded.data_files,
        versions=package_versions(),
        journal=journal.name,
    )


def package_versions() -> dict[str, str]:
    """Versions of Assay, Python and the packages whose code makes prompts and scores."""
    return {
        "assay": __version__,
        "python": platform.python_version(),
        **{package: installed_version(package) or "none" for package in _RECORDED_PACKAGES},
    }
