"""Moves a process into its own Linux namespaces, which limit what it and its children can see and change."""

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
    """Enter new namespaces and return in a child that is process 1 there; this process only waits for the child.

    In them no file can be written, and there is no network, no other process and no device but a few harmless ones.

    Args:
        own_user: use a user namespace, which needs no privileges; else this process must be root's.
        shared_memory: the target of ``/dev/shm``.
        needed: folders and files that `reader` must be able to reach.
        reader: a user for whom closed parent folders of `needed` are opened; None to open none.

    Raises:
        OSError: the machine does not allow it.
    """
    new = _NEW_MOUNTS | _NEW_HOST_NAME | _NEW_IPC | _NEW_PROCESSES | _NEW_NETWORK
    if own_user:
        _enter_own_user_namespace(new)
    else:
        call("unshare", new)
    _fork_process_1()
    _mount(None, "/", _MS_REC | _MS_PRIVATE)
    if reader is not None:
        _replace_closed_folders(needed, reader)
    devices = _replace_dev(shared_memory)
    _replace_proc()
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
    """Unmount a file system, even one in use."""
    call("umount2", place.encode(), _MNT_DETACH)


def _enter_own_user_namespace(new: int) -> None:
    user, group = os.geteuid(), os.getegid()
    # A process that changed its user can write its own maps only while it is dumpable.
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)
    call("unshare", _NEW_USER | new)
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w") as writing:
            writing.write(text)
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


def _fork_process_1() -> None:
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(max(0, os.waitstatus_to_exitcode(status)) if os.WIFEXITED(status) else 1)
    call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _replace_closed_folders(needed: Iterable[str], reader: int) -> None:
    """Replace parent folders that `reader` cannot enter by folders in memory that hold only what is needed."""
    by_closed: defaultdict[str, set[str]] = defaultdict(set)
    for path in {form for given in needed for form in (os.path.abspath(given), os.path.realpath(given))}:
        if (closed := _first_closed(path, reader)) is not None:
            by_closed[closed].add(path)
    for closed, paths in by_closed.items():
        kept = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in sorted(paths)}
        _mount("tmpfs", closed, _MS_NOSUID | _MS_NODEV, f"size={_SMALL},mode=755")
        for path, kept_open in kept.items():
            if not os.path.exists(path):  # it may lie in a folder that is bound already
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


def _replace_dev(shared_memory: str) -> list[str]:
    """Mount a /dev with harmless devices only."""
    kept = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES if os.path.exists(f"/dev/{name}")}
    _mount("tmpfs", "/dev", _MS_NOSUID, f"size={_SMALL},mode=755")
    for name, kept_open in kept.items():
        _bind(kept_open, f"/dev/{name}", folder=False)
        os.close(kept_open)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    os.symlink(shared_memory, "/dev/shm")  # noqa: S108 - a program has one of its own
    return [f"/dev/{name}" for name in kept]


def _replace_proc() -> None:
    """Mount a /proc that shows this namespace only; an empty one if the container may not mount it."""
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
