"""Shuts programs in: once for the server that forks them, and then for each of them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from assay.sandbox.file_access import allow_changes_only_in
from assay.sandbox.linux import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, call
from assay.sandbox.namespaces import enter_namespaces, mount_memory, unmount
from assay.sandbox.program import Confinement
from assay.sandbox.removal import remove_folder
from assay.sandbox.system_calls import refuse_system_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from assay.sandbox.program import Limits

_NOBODY = 65534
_SPARE_PROCESSOR_SECONDS = 10
"""For what is imported before a program; its wall-clock time is the limit that counts."""
_MOST_FILES = 10_000
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where the C library keeps it

# Linux constants, from the kernel's headers.
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 24, 38, 36
_CAPABILITY_VERSION, _CAPABILITIES = 0x20080522, 64


class _Way(NamedTuple):
    """A way to set up the server."""

    namespaces: bool
    own_user_namespace: bool
    nobody: bool
    """Whether programs run as nobody."""


_WAYS = (
    _Way(namespaces=True, own_user_namespace=False, nobody=True),
    _Way(namespaces=True, own_user_namespace=True, nobody=True),
    _Way(namespaces=True, own_user_namespace=True, nobody=False),
    _Way(namespaces=False, own_user_namespace=False, nobody=True),
    _Way(namespaces=False, own_user_namespace=False, nobody=False),
)
"""The best first."""


def confine_server(folder: str, without: Collection[str]) -> Confinement:
    """Shut this process in as far as the machine lets it; each step is tried in a child first.

    With namespaces it goes on in a child, as their first process.

    Args:
        folder: an empty folder, where programs will work.
        without: steps not to take, by their names in :class:`Confinement`.
    """
    if sys.platform.startswith("linux"):
        # Whatever loses its parent becomes this process's own, so that it can be found and killed.
        call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # No program of the same user may look into it.
        call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    way = next(way for way in _WAYS if _is_wanted(way, without) and _works(functools.partial(_settle, folder, way)))
    _settle(folder, way)
    filtered = "system_calls" not in without and _works(functools.partial(_filter, changes_of_files=True))
    files = "files" not in without and _works(functools.partial(_restrict_files, folder))
    return Confinement(system_calls=filtered, files=files, namespaces=way.namespaces, user=way.nobody)


@contextlib.contextmanager
def workplace(folder: str, confinement: Confinement, limits: Limits) -> Iterator[str]:
    """A folder for one program, which vanishes with all that is in it."""
    if not confinement.namespaces:
        place = tempfile.mkdtemp(dir=folder)
        try:
            _give_away(place, confinement)
            yield place
        finally:
            remove_folder(place)
        return
    mount_memory(folder, size=limits.storage, files=_MOST_FILES)
    try:
        for place in (_home(folder), _shared_memory(folder)):
            os.mkdir(place, 0o700)
            _give_away(place, confinement)
        yield _home(folder)
    finally:
        unmount(folder)


def confine_program(folder: str, place: str, confinement: Confinement, limits: Limits, seconds: float) -> None:
    """Shut this process in for good, with a folder of its own as the working directory.

    Args:
        folder: where all programs of the server work.
        place: this one's, from :func:`workplace`.
        confinement: which steps to take.
        limits: what it may use.
        seconds: its wall-clock time.

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
    if not sys.platform.startswith("linux"):
        return
    _limit(resource.RLIMIT_AS, limits.memory)
    # Without a user namespace they are counted together with all others of the user.
    counted_alone = confinement.namespaces and os.geteuid() != 0
    _limit(resource.RLIMIT_NPROC, limits.threads if counted_alone else 16 * limits.threads)
    if confinement.user:
        _become_nobody()
    call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    _give_up_privileges()
    if confinement.files:
        # Semaphores are files in shared memory. With namespaces it is in the folder.
        allow_changes_only_in(*((folder,) if confinement.namespaces else (place, _SHARED_MEMORY)))
    if confinement.system_calls:
        refuse_system_calls(changes_of_files=confinement.namespaces or confinement.user)


# -- the server -------------------------------------------------------------------------------------------------------


def _is_wanted(way: _Way, without: Collection[str]) -> bool:
    if way.nobody and (os.geteuid() != 0 or "user" in without):
        return False
    return not (way.namespaces and "namespaces" in without)


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


def _settle(folder: str, way: _Way) -> None:
    needed = [place for place in {*sys.path, sys.prefix, sys.base_prefix} if os.path.exists(place)]
    if way.nobody and way.own_user_namespace:
        os.chown(folder, _NOBODY, _NOBODY)
        _become_nobody()
    else:
        os.chown(folder, os.geteuid(), os.getegid())  # an attempt at that may have given it away
    if way.namespaces:
        enter_namespaces(
            own_user=way.own_user_namespace,
            shared_memory=_shared_memory(folder),
            needed=[*needed, folder],
            reader=_NOBODY if way.nobody and not way.own_user_namespace else None,
        )
        mount_memory(folder, size=4096, files=2)
        unmount(folder)
    elif way.nobody:
        os.chmod(folder, 0o711)  # noqa: S103 - so that a program reaches its own folder in there
        needed.append(os.path.dirname(folder))
    if way.nobody and not _works(functools.partial(_read_as_nobody, needed)):
        raise PermissionError("nobody may not read the interpreter")


def _read_as_nobody(needed: Collection[str]) -> None:
    _become_nobody()
    if not all(os.access(place, os.X_OK if os.path.isdir(place) else os.R_OK) for place in needed):
        raise PermissionError


def _give_away(place: str, confinement: Confinement) -> None:
    if confinement.user and os.geteuid() == 0:
        os.chown(place, _NOBODY, _NOBODY)


def _home(folder: str) -> str:
    return os.path.join(folder, "home")


def _shared_memory(folder: str) -> str:
    return os.path.join(folder, "shm")


# -- a program --------------------------------------------------------------------------------------------------------


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (value, value))


def _filter(*, changes_of_files: bool) -> None:
    _give_up_privileges()
    refuse_system_calls(changes_of_files=changes_of_files)


def _restrict_files(folder: str) -> None:
    _give_up_privileges()
    allow_changes_only_in(folder)


def _become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _give_up_privileges() -> None:
    """Drop every capability, and the ways to get one back."""
    for capability in range(_CAPABILITIES):
        with contextlib.suppress(OSError):
            call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
