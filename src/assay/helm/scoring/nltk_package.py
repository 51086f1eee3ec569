"""NLTK without what only its classifiers and parsers need."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_FOR_OTHER_PARTS = frozenset({"matplotlib", "pandas", "scipy", "sklearn"})
"""What importing NLTK imports where it is installed: 150 MB that tokenizing and stemming never touch."""


def import_nltk() -> None:
    """Import NLTK for its tokenizers and stemmers.

    Packages that have been imported before stay visible to it. Where they have not, its wrappers around scikit-learn
    and its dependency parser are not to be used in this process.
    """
    if "nltk" not in sys.modules:
        with _hidden(_FOR_OTHER_PARTS):
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
    """Lets packages seem not installed to the thread that made it."""

    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if fullname.partition(".")[0] in self._packages and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
