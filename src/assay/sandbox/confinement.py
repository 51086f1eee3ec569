"""Shuts programs in: once for the server that forks them, and then for each of them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import shutil
import signal
import sys
import tempfile
from typing import TYPE_CHECKING

from assay.sandbox.program import Confinement
from assay.sandbox.system_calls import refuse_system_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from assay.sandbox.program import Limits

_NOBODY = 65534
_SPARE_PROCESSOR_SECONDS = 10
"""For what is imported before a program; its wall-clock time is the limit that counts."""
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a program gets an empty one of its own

# Linux constants, from the kernel's headers.
_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x00020000, 0x08000000, 0x10000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 1, 2, 4, 0x4000, 1 << 18
_MNT_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 24, 38, 36
_CAPABILITY_VERSION, _CAPABILITIES = 0x20080522, 64


def confine_server(folder: str, without: Collection[str]) -> Confinement:
    """Shut this process in as far as the machine lets it; each step is tried in a child first.

    Args:
        folder: an empty folder, where programs will work.
        without: steps not to take, by their names in :class:`Confinement`.
    """
    _adopt_orphans()
    user, enter = _best_way_in(folder, without)
    _settle(folder, user, enter)
    filtered = "system_calls" not in without and _works(_filter_for_good)
    return Confinement(system_calls=filtered, namespaces=enter is not None, user=user)


def _best_way_in(folder: str, without: Collection[str]) -> tuple[bool, Callable[[], None] | None]:
    """Whether to become nobody, and how to enter namespaces, if at all."""
    ways: list[tuple[bool, Callable[[], None] | None]] = []
    if "namespaces" not in without:
        ways += [(True, _enter_own_user_namespace), (False, _enter_own_user_namespace), (False, _enter_as_root)]
    ways.append((True, None))
    for as_nobody, enter in ways:
        allowed = not as_nobody or ("user" not in without and os.geteuid() == 0)
        if allowed and _works(functools.partial(_settle, folder, as_nobody, enter)):
            return as_nobody, enter
    return False, None


@contextlib.contextmanager
def workplace(folder: str, confinement: Confinement, limits: Limits) -> Iterator[str]:
    """A folder for one program, which vanishes with all that is in it."""
    if not confinement.namespaces:
        place = tempfile.mkdtemp(dir=folder)
        try:
            yield place
        finally:
            _remove(place)
        return
    mounted = [place for place in (folder, _SHARED_MEMORY) if os.path.isdir(place)]
    options = f"size={limits.storage},nr_inodes=10000,mode=700"
    for place in mounted:
        _mount("tmpfs", place, _MS_NOSUID | _MS_NODEV, options)
    try:
        yield folder
    finally:
        for place in mounted:
            _call("umount2", place.encode(), _MNT_DETACH)


def confine_program(place: str, confinement: Confinement, limits: Limits, seconds: float) -> None:
    """Shut this process in for good, with a folder of its own as the working directory.

    Raises:
        OSError: a step that worked before does not.
    """
    os.setsid()
    os.chdir(place)
    os.environ.clear()
    os.environ.update(HOME=place, TMPDIR=place, OMP_NUM_THREADS="1")
    tempfile.tempdir = place
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, int(seconds) + _SPARE_PROCESSOR_SECONDS)
    _limit(resource.RLIMIT_FSIZE, limits.storage)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    if sys.platform.startswith("linux"):
        _limit(resource.RLIMIT_AS, limits.memory)
        _limit(resource.RLIMIT_NPROC, limits.threads if confinement.namespaces else 16 * limits.threads)
        _call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        _give_up_privileges()
    if confinement.system_calls:
        refuse_system_calls()


# -- the server -------------------------------------------------------------------------------------------------------


def _adopt_orphans() -> None:
    """Become the parent of whatever loses its own, so that it can be found and killed."""
    if sys.platform.startswith("linux"):
        _call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _works(step: Callable[[], object]) -> bool:
    """Whether a step succeeds in a child."""
    child = os.fork()
    if child == 0:
        try:
            step()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _settle(folder: str, as_nobody: bool, enter: Callable[[], None] | None) -> None:
    if as_nobody:
        _become_nobody(folder)
    else:
        os.chown(folder, os.geteuid(), os.getegid())  # an attempt at the other may have given it away
    if enter is not None:
        enter()
        _mount(None, "/", _MS_REC | _MS_PRIVATE)
        _make_read_only("/")
        _mount("tmpfs", folder, _MS_NOSUID | _MS_NODEV, "size=4096")
        _call("umount2", folder.encode(), _MNT_DETACH)


def _become_nobody(folder: str) -> None:
    needed = [place for place in (*sys.path, folder) if os.path.exists(place)]
    os.chown(folder, _NOBODY, _NOBODY)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    if closed := [place for place in needed if not os.access(place, os.R_OK)]:
        raise PermissionError(f"nobody may not read {closed[0]}")


def _enter_own_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _NEW_USER | _NEW_MOUNTS | _NEW_IPC | _NEW_NETWORK)
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w") as writing:
            writing.write(text)


def _enter_as_root() -> None:
    """Without a user namespace other processes' environments could be read, so there is no /proc either."""
    _call("unshare", _NEW_MOUNTS | _NEW_IPC | _NEW_NETWORK)
    _mount(None, "/", _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", "/proc", _MS_RDONLY, "size=4096")


def _make_read_only(place: str) -> None:
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    _call(
        "syscall",
        *map(ctypes.c_long, (_MOUNT_SETATTR, _AT_FDCWD)),
        place.encode(),
        ctypes.c_long(_AT_RECURSIVE),
        attributes,
        ctypes.c_long(ctypes.sizeof(attributes)),
    )


def _remove(place: str) -> None:
    def open_up(_: object, path: str, __: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700)
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)

    shutil.rmtree(place, onerror=open_up)
    shutil.rmtree(place, ignore_errors=True)


# -- a program --------------------------------------------------------------------------------------------------------


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))


def _filter_for_good() -> None:
    _give_up_privileges()
    refuse_system_calls()


def _give_up_privileges() -> None:
    """Drop every capability, and the ways to get one back."""
    for capability in range(_CAPABILITIES):
        with contextlib.suppress(OSError):
            _call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


# -- the C library ----------------------------------------------------------------------------------------------------


def _mount(kind: str | None, place: str, flags: int, options: str = "") -> None:
    name = None if kind is None else kind.encode()
    _call("mount", name, place.encode(), name, ctypes.c_ulong(flags), options.encode() or None)


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
