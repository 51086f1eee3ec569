"""Which tasks, groups and tags there are, and in which YAML file each is defined.

The same names, kinds, files and tag members that lm-eval's ``TaskManager`` finds, without importing lm-eval's task code
and without its start-up cost: lm-eval's own folder is scanned once and the result kept on disk until that folder
changes. The user's folder is read in full each time, so that a fault in it is reported at once.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import hashlib
import importlib.util
import logging
import os
import zlib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.cache import cache_dir, store
from assay._util.paths import expand_home
from assay._util.versions import installed_version
from assay.errors import SpecificationError, TaskConfigError, UnknownTaskError
from assay.tasks.yaml_headers import HeaderReader, checked_header, own_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_log = logging.getLogger(__name__)

_SKIPPED_FOLDERS = frozenset({"__pycache__", ".ipynb_checkpoints"})
_CACHE_FORMAT = 1


class TaskKind(StrEnum):
    """What a name stands for."""

    TASK = "task"
    PYTHON_TASK = "python task"
    """A task that is a Python class, named by its YAML's ``class`` key."""
    GROUP = "group"
    TAG = "tag"


class TaskEntry(msgspec.Struct, frozen=True, array_like=True):
    """One name that can be run."""

    name: str
    kind: TaskKind
    path: str | None
    """The YAML file; None for a tag, which has none."""
    tags: tuple[str, ...] = ()
    """The tags that a task or group carries; for a tag, the tasks that carry it. Sorted."""
    output_type: str | None = None
    """lm-eval's ``output_type`` of a YAML task; None where only loading the task could tell."""


class TaskIndex:
    """All names, as lm-eval knows them."""

    def __init__(self, entries: Mapping[str, TaskEntry], *, has_own: bool = False) -> None:
        """Hold `entries` by name, the user's own among them if `has_own`."""
        self.entries = entries
        self._has_own = has_own

    def match(self, patterns: str | Sequence[str]) -> list[str]:
        """Return the names that fit a shell pattern, or any of several; sorted."""
        wanted = [patterns] if isinstance(patterns, str) else patterns
        return sorted({name for pattern in wanted for name in fnmatch.filter(self.entries, pattern)})

    def entry(self, name: str) -> TaskEntry:
        """Return what `name` stands for.

        Raises:
            UnknownTaskError: Nothing has that name; the message has the nearest names.
        """
        if (found := self.entries.get(name)) is None:
            raise UnknownTaskError(f"no task, group or tag is called {name!r}; {self._hint(name)}")
        return found

    def kind(self, name: str) -> TaskKind:
        """Return whether `name` is a task, a group or a tag.

        Raises:
            UnknownTaskError: Nothing has that name.
        """
        return self.entry(name).kind

    def members(self, tag: str) -> tuple[str, ...]:
        """Return the tasks that carry `tag`, sorted.

        Raises:
            UnknownTaskError: Nothing has that name, or it is no tag.
        """
        entry = self.entry(tag)
        if entry.kind is not TaskKind.TAG:
            raise UnknownTaskError(f"{tag!r} is a {entry.kind}, not a tag")
        return entry.tags

    def unmatched(self, pattern: str) -> UnknownTaskError:
        """The error that says that no name matches a pattern, with the nearest names."""
        return UnknownTaskError(f"no task, group or tag matches {pattern!r}; {self._hint(pattern)}")

    def _hint(self, name: str) -> str:
        near = ", ".join(self.near(name))
        own = "" if self._has_own else "; a task of your own: name its YAML's folder with --include-path"
        return (f"near: {near}" if near else "`assay tasks PATTERN` lists the names that there are") + own

    def near(self, name: str, count: int = 3) -> list[str]:
        """Return up to `count` names that resemble `name`, best first."""
        return difflib.get_close_matches(name, self.entries, n=count)


def list_tasks(pattern: str = "*", include_path: str | None = None) -> tuple[TaskEntry, ...]:
    """The tasks, groups and tags there are: lm-eval's, and the user's own.

    Args:
        pattern: of their names: ``*``, ``?`` and ``[…]`` as in a shell; a plain word matches anywhere.
        include_path: a folder with task YAML of your own.

    Raises:
        UnknownTaskError: nothing matches.
        TaskConfigError: one of the user's own files cannot be read.
    """
    index = task_index(include_path)
    names = index.match(pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*")
    if not names:
        raise index.unmatched(pattern)
    return tuple(index.entry(name) for name in names)


def task_index(include_path: str | None = None) -> TaskIndex:
    """Return the index of lm-eval's tasks and of those in `include_path`, which win where names are equal.

    Raises:
        SpecificationError: `include_path` is no folder.
        TaskConfigError: A file in `include_path` is malformed.
    """
    root = lm_eval_tasks_folder()
    cached = cache_dir() / f"task-index-{_cache_key(root)}.msgpack"
    entries = _read_cache(cached)
    if entries is None:
        folders = list(_walk(root))
        # Taken before the scan: a change during it makes the stored index stale rather than wrong.
        state = _state(root, folders)
        entries = _scan((file for _, files in folders for file in files), HeaderReader(own_header), lenient=True)
        _write_cache(cached, _CachedIndex(_CACHE_FORMAT, state, entries))
    if include_path is None:
        return TaskIndex({entry.name: entry for entry in entries})
    return TaskIndex({entry.name: entry for entry in entries + _user_entries(include_path)}, has_own=True)


def entry_from_file(path: str | Path) -> TaskEntry:
    """Return the task or group that a YAML file defines, wherever the file lies.

    Raises:
        TaskConfigError: The file is malformed or defines neither.
    """
    resolved = str(expand_home(path).resolve())
    entry = _entry(resolved, HeaderReader(checked_header).read(resolved))
    if entry is None:
        raise TaskConfigError(f"{path}: defines no task: it has neither a `task:` nor a `group:` key")
    return entry


def lm_eval_tasks_folder() -> Path:
    """Return lm-eval's task folder, without importing lm-eval."""
    spec = importlib.util.find_spec("lm_eval")
    if spec is None or spec.origin is None:
        raise RuntimeError("lm_eval is not installed")
    return Path(spec.origin).parent / "tasks"


# -- scanning ---------------------------------------------------------------------------------------------------------


def _user_entries(include_path: str) -> list[TaskEntry]:
    root = Path(include_path)
    if not root.is_dir():
        raise SpecificationError(f"include_path {include_path!r} is no folder")
    if not os.access(root, os.R_OK | os.X_OK):
        raise SpecificationError(f"include_path {include_path!r} cannot be read: you have no right to")
    files = (file for _, files in _walk(root) for file in files)
    return _scan(files, HeaderReader(checked_header), lenient=False)


def _walk(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield every folder with its YAML files; symbolic links to folders are not followed, as in lm-eval."""
    if _SKIPPED_FOLDERS.intersection(root.parts):
        return
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if name not in _SKIPPED_FOLDERS]
        yield folder, [os.path.join(folder, name) for name in files if name.endswith(".yaml")]


def _scan(files: Iterable[str], reader: HeaderReader, *, lenient: bool) -> list[TaskEntry]:
    """Return the entries that `files` define; of equal names the first in path order stays, as in lm-eval."""
    index: dict[str, TaskEntry] = {}
    members: dict[str, set[str]] = {}
    for path in sorted(files):
        try:
            entry = _entry(path, reader.read(path))
        except Exception as error:
            if not lenient:
                raise
            _log.debug("skipped %s: %s", path, error)
            continue
        if entry is None:
            continue
        if entry.name in index:
            _log.warning("%s: %r is defined before, in %s; skipped", path, entry.name, index[entry.name].path)
            continue
        index[entry.name] = entry
        if entry.kind is not TaskKind.GROUP:
            for tag in entry.tags:
                index.setdefault(tag, TaskEntry(tag, TaskKind.TAG, None))
                members.setdefault(tag, set()).add(entry.name)
    for name, tasks in members.items():
        tagged = index[name]
        index[name] = msgspec.structs.replace(tagged, tags=tuple(sorted(tasks.union(tagged.tags))))
    return list(index.values())


def _entry(path: str, header: dict[str, Any]) -> TaskEntry | None:
    if "class" in header:
        kind, name = TaskKind.PYTHON_TASK, header.get("task")
    elif "group" in header:
        kind, name = TaskKind.GROUP, header["group"]
    else:
        kind, name = TaskKind.TASK, header.get("task")
    if name is None:
        return None
    if not isinstance(name, str):
        raise TaskConfigError(f"{path}: the name of a {kind} is text, not {name!r}")
    output_type = str(header.get("output_type") or "generate_until") if kind is TaskKind.TASK else None
    return TaskEntry(name, kind, path, _tags(path, header.get("tag")), output_type)


def _tags(path: str, value: Any) -> tuple[str, ...]:
    tags = [value] if isinstance(value, str) else value or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise TaskConfigError(f"{path}: tag: expects a name or a list of names, not {value!r}")
    return tuple(sorted(set(tags)))


# -- keeping ----------------------------------------------------------------------------------------------------------


class _CachedIndex(msgspec.Struct, frozen=True, array_like=True):
    format: int
    state: dict[str, int]
    """Modification time in ns of every folder (and file, where lm-eval is a source checkout) that was read."""
    entries: list[TaskEntry]


def _cache_key(root: Path) -> str:
    return hashlib.sha256(f"{installed_version('lm_eval')}\0{root}".encode()).hexdigest()[:16]


def _state(root: Path, folders: list[tuple[str, list[str]]]) -> dict[str, int]:
    """Return what must stay the same for a scan to stay true.

    Installed packages change by files coming and going, which their folder's time shows; in a source checkout files
    are also edited in place.
    """
    installed = {"site-packages", "dist-packages"}.intersection(root.parts)
    watched = [path for folder, files in folders for path in (folder, *(() if installed else files))]
    return {path: os.stat(path).st_mtime_ns for path in watched}


def _write_cache(path: Path, index: _CachedIndex) -> None:
    content = msgspec.msgpack.encode(index)
    store(path, zlib.crc32(content).to_bytes(4) + content)


def _read_cache(path: Path) -> list[TaskEntry] | None:
    """Return the stored entries; None where they are missing, damaged, or the folder has changed since."""
    try:
        about = path.stat()
        cached = _stored_index(path, about.st_mtime_ns, about.st_size)
        if cached is None or cached.format != _CACHE_FORMAT:
            return None
        if all(os.stat(watched).st_mtime_ns == modified for watched, modified in cached.state.items()):
            return cached.entries
    except (OSError, msgspec.MsgspecError):
        pass
    return None


@functools.lru_cache(maxsize=1)
def _stored_index(path: Path, _modified: int, _size: int) -> _CachedIndex | None:
    """What the file holds; None if it is damaged. Decoded once, as long as the file stays the same."""
    stored = memoryview(path.read_bytes())
    if zlib.crc32(stored[4:]) != int.from_bytes(stored[:4]):
        return None
    return msgspec.msgpack.decode(stored[4:], type=_CachedIndex)
