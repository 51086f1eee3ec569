"""Defers the import of large libraries that lm-eval imports at its start until they are used.

lm-eval needs ``datasets`` to load data, ``requests`` for pictures behind a URL, and ``sacrebleu`` for BLEU, chrF and
TER. Together, with pandas behind them, they take 0.7 s and 100 MB. A run whose rows are kept on the disk
(``tasks.kept_rows``) uses none.

The standard library's ``LazyLoader`` does not help: it loads a module at the second ``import`` of its name.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_LIBRARIES = ("datasets", "requests", "sacrebleu")
_one_at_a_time = threading.RLock()


def defer_imports() -> None:
    """Put a stand-in for each library that is not imported yet.

    To be called before the first import of lm-eval.
    """
    for name in _LIBRARIES:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            sys.modules[name] = _StandIn(name, spec)


class _StandIn(ModuleType):
    """Becomes the library when an attribute is missing, such as ``__path__`` by a submodule's import."""

    def __init__(self, name: str, spec: Any) -> None:
        super().__init__(name)
        self.__spec__ = spec
        self.__file__ = spec.origin
        self._is_becoming = False

    def __getattr__(self, name: str) -> Any:
        with _one_at_a_time:
            if vars(self).get("_is_becoming"):
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} yet")
            if type(self) is _StandIn:
                self._become()
        return getattr(self, name)

    def _become(self) -> None:
        """Import the library in place; what has been set on the stand-in meanwhile stays."""
        spec: Any = self.__spec__
        given = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        self._is_becoming = True
        library = importlib.util.module_from_spec(spec)
        vars(self).update(vars(library))
        try:
            spec.loader.exec_module(self)
        except BaseException:
            del sys.modules[self.__name__]
            raise
        finally:
            del self._is_becoming
        vars(self).update(given)
        self.__class__ = ModuleType  # type: ignore[assignment]
