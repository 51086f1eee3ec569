"""Versions of installed packages."""

from __future__ import annotations

import functools
import importlib.metadata


@functools.cache
def installed_version(package: str) -> str | None:
    """The version of a package, looked up once in a process; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
