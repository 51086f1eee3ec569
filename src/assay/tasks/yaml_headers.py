"""Reads the few keys of a task's YAML that say what it is called."""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from typing import TYPE_CHECKING, Any

from assay.errors import TaskConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = frozenset({"task", "group", "tag", "class", "include", "output_type"})

_NAMES_A_TASK = re.compile(rb"^(?:task|group|tag|class|include|output_type)[ \t]*:", re.MULTILINE)


class HeaderReader:
    """Reads headers, each included file once."""

    def __init__(self, read_own: Callable[[str], dict[str, Any]]) -> None:
        """Read single files with `read_own`: `own_header` or `checked_header`."""
        self._read_own = read_own
        self._own: dict[str, dict[str, Any]] = {}

    def read(self, path: str) -> dict[str, Any]:
        """Return a file's values for `KEYS`, included files merged as lm-eval merges them.

        A value is what YAML gives, but for ``class`` only its presence counts.

        Raises:
            TaskConfigError: It cannot be read; or it includes what cannot be read or is no path, or one file twice,
                which lm-eval takes for a cycle. `read_own` can raise more.
        """
        try:
            return self._merged(path, set())
        except OSError as error:
            raise TaskConfigError(f"{path}: {error.strerror or error}") from None

    def _merged(self, path: str, seen: set[str]) -> dict[str, Any]:
        if path in seen:
            raise TaskConfigError(f"{path}: is included twice on the way, which lm-eval refuses as a cycle")
        seen.add(path)
        own = self._own.get(path)
        if own is None:
            own = self._own[path] = self._read_own(path)
        if "include" not in own:
            return own
        included = own["include"]
        merged: dict[str, Any] = {}
        for name in included if isinstance(included, list) else [included]:
            if not isinstance(name, str):
                raise TaskConfigError(f"{path}: include: expects a path, not {name!r}")
            try:
                merged |= self._merged(os.path.normpath(os.path.join(os.path.dirname(path), name)), seen)
            except OSError as error:
                raise TaskConfigError(f"{path}: includes {name!r}: {error.strerror}") from None
        merged |= own
        del merged["include"]
        return merged


def own_header(path: str) -> dict[str, Any]:
    """Return one file's values for `KEYS`.

    Raises:
        OSError: It cannot be read.
        yaml.YAMLError: It is not YAML.
        TypeError: It is no mapping.
    """
    return _parse(_read(path))


def whole_file(path: str) -> dict[str, Any]:
    """As :func:`own_header`, with all keys.

    Raises:
        OSError: It cannot be read.
        TaskConfigError: It cannot be read as a mapping.
    """
    import yaml

    try:
        return _mapping(_read(path))
    except (yaml.YAMLError, TypeError) as error:
        raise TaskConfigError(_describe(path, error)) from None


def checked_header(path: str) -> dict[str, Any]:
    """As :func:`own_header`, with readable errors; no values where the file is YAML for another purpose.

    Raises:
        OSError: It cannot be read.
        TaskConfigError: It is not YAML, or it reads like a task but the parser cannot make a mapping of it.
    """
    import yaml

    text = _read(path)
    try:
        return _parse(text)
    except TypeError:
        return {}
    except yaml.YAMLError as error:
        # Several documents or foreign tags are no fault in a file that never meant to be a task.
        foreign = isinstance(error, yaml.composer.ComposerError | yaml.constructor.ConstructorError)
        if foreign and not _NAMES_A_TASK.search(text):
            return {}
        raise TaskConfigError(_describe(path, error)) from None


def _read(path: str) -> bytes:
    # Not blocking: opening a pipe that nobody writes to would wait for ever.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no regular file")
        return file.read()


def _describe(path: str, error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"{path}, line {mark.line + 1}" if mark else path
    return f"{where}: not valid YAML: {getattr(error, 'problem', None) or ' '.join(str(error).split())}"


def _parse(text: bytes) -> dict[str, Any]:
    return {key: value for key, value in _mapping(text).items() if key in KEYS}


def _mapping(text: bytes) -> dict[str, Any]:
    import yaml

    config = yaml.load(text, Loader=_loader())  # noqa: S506 - a subclass of the safe loader
    if not isinstance(config, dict):
        raise TypeError(f"a mapping is expected, not {type(config).__name__}")
    return config


@functools.cache
def _loader() -> Any:
    """Return lm-eval's YAML loader, except that ``!function`` gives the function's name and imports nothing."""
    import yaml

    base = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.FullLoader
    loader: Any = type("HeaderLoader", (base,), {})
    loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))
    return loader
