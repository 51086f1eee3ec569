"""Imports NLTK without packages that only its classifiers and parsers need."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_NOT_NEEDED = frozenset({"matplotlib", "pandas", "scipy", "sklearn"})
"""Packages that NLTK imports if they are installed: 150 MB that tokenizers and stemmers never use."""


def import_nltk() -> None:
    """Import NLTK for its tokenizers and stemmers.

    Packages that are already imported stay visible to NLTK. If they are not, its wrappers around scikit-learn and its
    dependency parser do not work in this process.
    """
    if "nltk" not in sys.modules:
        with _hidden(_NOT_NEEDED):
            import nltk  # noqa: F401


@contextmanager
def _hidden(packages: Collection[str]) -> Iterator[None]:
    finder = _NotFound(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _NotFound(MetaPathFinder):
    """Hides packages from the thread that created it, as if they were not installed."""

    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if fullname.partition(".")[0] in self._packages and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
