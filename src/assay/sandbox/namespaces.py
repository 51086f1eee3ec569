"""Namespaces (Linux) of its own for a process: what it and its children can see of the machine, and change."""

from __future__ import annotations

import ctypes
import os
import signal
from collections import defaultdict
from typing import TYPE_CHECKING

from assay.sandbox.linux import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, call, system_call

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_NEW_MOUNTS, _NEW_HOST_NAME, _NEW_IPC = 0x00020000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PROCESSES, _NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 0x1000, 0x4000, 1 << 18
_MNT_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000

_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_SMALL = 1 << 20


def enter_namespaces(*, own_user: bool, shared_memory: str, needed: Collection[str], reader: int | None) -> None:
    """Go on in namespaces of its own, as their process 1: a child that this process does nothing but wait for.

    No file can be written any more, there are no devices but the harmless ones, no network and no other process.

    Args:
        own_user: by way of a user namespace, which needs no privileges; else as root.
        shared_memory: where ``/dev/shm`` leads to.
        needed: folders and files that must be within reach of `reader`.
        reader: a user to whom closed folders on the way there are opened; None for nobody in particular.

    Raises:
        OSError: the machine does not allow it.
    """
    new = _NEW_MOUNTS | _NEW_HOST_NAME | _NEW_IPC | _NEW_PROCESSES | _NEW_NETWORK
    if own_user:
        _enter_own_user_namespace(new)
    else:
        call("unshare", new)
    _go_on_as_first_process()
    _mount(None, "/", _MS_REC | _MS_PRIVATE)
    if reader is not None:
        _open_the_way(needed, reader)
    devices = _replace_devices(shared_memory)
    _replace_processes()
    _set_attributes("/", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, recursive=True)
    for device in devices:
        _set_attributes(device, clear=_MS_NODEV)


def mount_memory(place: str, *, size: int, files: int) -> None:
    """Mount a file system in memory.

    Args:
        place: an existing folder.
        size: bytes.
        files: how many files and folders it may have.
    """
    _mount("tmpfs", place, _MS_NOSUID | _MS_NODEV, f"size={size},nr_inodes={files},mode=755")


def unmount(place: str) -> None:
    """Take it away, also while somebody uses it."""
    call("umount2", place.encode(), _MNT_DETACH)


def _enter_own_user_namespace(new: int) -> None:
    user, group = os.geteuid(), os.getegid()
    # A process that changed its user cannot write its own maps, unless it may be looked into.
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
    call("unshare", _NEW_USER | new)
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w") as writing:
            writing.write(text)
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


def _go_on_as_first_process() -> None:
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(max(0, os.waitstatus_to_exitcode(status)) if os.WIFEXITED(status) else 1)
    call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _open_the_way(needed: Iterable[str], reader: int) -> None:
    """Replace closed folders on the way to what is needed by folders in memory that hold nothing else."""
    by_closed: defaultdict[str, set[str]] = defaultdict(set)
    for path in {form for given in needed for form in (os.path.abspath(given), os.path.realpath(given))}:
        if (closed := _first_closed(path, reader)) is not None:
            by_closed[closed].add(path)
    for closed, paths in by_closed.items():
        kept = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in sorted(paths)}
        _mount("tmpfs", closed, _MS_NOSUID | _MS_NODEV, f"size={_SMALL},mode=755")
        for path, kept_open in kept.items():
            if not os.path.exists(path):  # it is not within one before it
                _bind(kept_open, path, folder=True)
            os.close(kept_open)


def _first_closed(path: str, reader: int) -> str | None:
    parents: list[str] = []
    while (path := os.path.dirname(path)) != "/":
        parents.append(path)
    for parent in reversed(parents):
        about = os.stat(parent)
        if not about.st_mode & (0o100 if about.st_uid == reader else 0o001):
            return parent
    return None


def _replace_devices(shared_memory: str) -> list[str]:
    """A /dev that holds what computes nothing and remembers nothing."""
    kept = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES if os.path.exists(f"/dev/{name}")}
    _mount("tmpfs", "/dev", _MS_NOSUID, f"size={_SMALL},mode=755")
    for name, kept_open in kept.items():
        _bind(kept_open, f"/dev/{name}", folder=False)
        os.close(kept_open)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    os.symlink(shared_memory, "/dev/shm")  # noqa: S108 - a program has one of its own
    return [f"/dev/{name}" for name in kept]


def _replace_processes() -> None:
    """A /proc that shows this namespace; an empty one where the machine hides parts of its own from containers."""
    try:
        _mount("proc", "/proc", _MS_NOSUID | _MS_NODEV)
    except OSError:
        _mount("tmpfs", "/proc", _MS_NOSUID | _MS_NODEV, "size=4096")


def _bind(opened: int, place: str, *, folder: bool) -> None:
    if folder:
        os.makedirs(place)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o666))
    _mount(f"/proc/self/fd/{opened}", place, _MS_BIND | (_MS_REC if folder else 0))


def _mount(source: str | None, place: str, flags: int, options: str = "") -> None:
    name = None if source is None else source.encode()
    call("mount", name, place.encode(), name, ctypes.c_ulong(flags), options.encode() or None)


def _set_attributes(place: str, attributes: int = 0, *, clear: int = 0, recursive: bool = False) -> None:
    """Attributes of mounts; these have the values of the flags that mount takes."""
    changes = (ctypes.c_uint64 * 4)(attributes, clear, 0, 0)
    system_call(
        _MOUNT_SETATTR,
        ctypes.c_long(_AT_FDCWD),
        place.encode(),
        ctypes.c_long(_AT_RECURSIVE if recursive else 0),
        changes,
        ctypes.c_long(ctypes.sizeof(changes)),
    )
