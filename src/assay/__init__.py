"""Assay tells whether a served language model still answers as it should, how sure that is, and if not, why."""

from assay._version import __version__

__all__ = ["__version__"]
