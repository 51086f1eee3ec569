"""Confines programs: first the server process that forks them, then each program."""

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
"""For the imports before a program. The program's own limit is its wall-clock time."""
_MOST_FILES = 10_000
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where the C library keeps it

# Linux constants, from the kernel's headers.
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 24, 38, 36
_CAPABILITY_VERSION, _CAPABILITIES = 0x20080522, 64


class _Setup(NamedTuple):
    """A way to set up the server."""

    namespaces: bool
    own_user_namespace: bool
    nobody: bool
    """Whether programs run as nobody."""


_SETUPS = (
    _Setup(namespaces=True, own_user_namespace=False, nobody=True),
    _Setup(namespaces=True, own_user_namespace=True, nobody=True),
    _Setup(namespaces=True, own_user_namespace=True, nobody=False),
    _Setup(namespaces=False, own_user_namespace=False, nobody=True),
    _Setup(namespaces=False, own_user_namespace=False, nobody=False),
)
"""The best first."""


def confine_server(folder: str, without: Collection[str]) -> Confinement:
    """Confine this process as far as the machine allows. Each step is tried in a child first.

    With namespaces, this function returns in a child, which is process 1 there.

    Args:
        folder: an empty folder, where programs will work.
        without: steps to leave out, by their names in :class:`Confinement`.
    """
    if sys.platform.startswith("linux"):
        # Orphans become children of this process, so that it can find and kill them.
        call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Programs of the same user cannot read this process's memory.
        call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    setup = next(
        setup for setup in _SETUPS if _is_allowed(setup, without) and _works(functools.partial(_set_up, folder, setup))
    )
    _set_up(folder, setup)
    filtered = "system_calls" not in without and _works(functools.partial(_filter, changes_of_files=True))
    files = "files" not in without and _works(functools.partial(_restrict_files, folder))
    return Confinement(system_calls=filtered, files=files, namespaces=setup.namespaces, user=setup.nobody)


@contextlib.contextmanager
def workplace(folder: str, confinement: Confinement, limits: Limits) -> Iterator[str]:
    """A folder for one program, removed with its content afterwards."""
    if not confinement.namespaces:
        workdir = tempfile.mkdtemp(dir=folder)
        try:
            _chown_to_nobody(workdir, confinement)
            yield workdir
        finally:
            remove_folder(workdir)
        return
    mount_memory(folder, size=limits.storage, files=_MOST_FILES)
    try:
        for workdir in (_home(folder), _shared_memory(folder)):
            os.mkdir(workdir, 0o700)
            _chown_to_nobody(workdir, confinement)
        yield _home(folder)
    finally:
        unmount(folder)


def confine_program(folder: str, workdir: str, confinement: Confinement, limits: Limits, seconds: float) -> None:
    """Confine this process for good, and make the program's folder its working directory.

    Args:
        folder: where all programs of the server work.
        workdir: this program's folder, from :func:`workplace`.
        confinement: which steps to take.
        limits: what the program may use.
        seconds: the program's wall-clock time.

    Raises:
        OSError: a step fails that worked when it was tried.
    """
    os.setsid()
    os.chdir(workdir)
    os.environ.clear()
    os.environ.update(HOME=workdir, TMPDIR=workdir, OMP_NUM_THREADS="1")
    tempfile.tempdir = workdir
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, int(seconds) + _SPARE_PROCESSOR_SECONDS)
    _limit(resource.RLIMIT_FSIZE, limits.storage)
    _limit(resource.RLIMIT_NOFILE, limits.open_files)
    if not sys.platform.startswith("linux"):
        return
    _limit(resource.RLIMIT_AS, limits.memory)
    # Without a user namespace the limit counts all processes of the user.
    counted_alone = confinement.namespaces and os.geteuid() != 0
    _limit(resource.RLIMIT_NPROC, limits.threads if counted_alone else 16 * limits.threads)
    if confinement.user:
        _become_nobody()
    call("prctl", PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    _give_up_privileges()
    if confinement.files:
        # Semaphores are files in shared memory, which with namespaces lies in the folder.
        allow_changes_only_in(*((folder,) if confinement.namespaces else (workdir, _SHARED_MEMORY)))
    if confinement.system_calls:
        refuse_system_calls(changes_of_files=confinement.namespaces or confinement.user)


# -- the server -------------------------------------------------------------------------------------------------------


def _is_allowed(setup: _Setup, without: Collection[str]) -> bool:
    if setup.nobody and (os.geteuid() != 0 or "user" in without):
        return False
    return not (setup.namespaces and "namespaces" in without)


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


def _set_up(folder: str, setup: _Setup) -> None:
    needed = [workdir for workdir in {*sys.path, sys.prefix, sys.base_prefix} if os.path.exists(workdir)]
    if setup.nobody and setup.own_user_namespace:
        os.chown(folder, _NOBODY, _NOBODY)
        _become_nobody()
    else:
        os.chown(folder, os.geteuid(), os.getegid())  # an earlier attempt may have given it to nobody
    if setup.namespaces:
        enter_namespaces(
            own_user=setup.own_user_namespace,
            shared_memory=_shared_memory(folder),
            needed=[*needed, folder],
            reader=_NOBODY if setup.nobody and not setup.own_user_namespace else None,
        )
        mount_memory(folder, size=4096, files=2)
        unmount(folder)
    elif setup.nobody:
        os.chmod(folder, 0o711)  # noqa: S103 - programs must reach their own folder in it
        needed.append(os.path.dirname(folder))
    if setup.nobody and not _works(functools.partial(_read_as_nobody, needed)):
        raise PermissionError("nobody may not read the interpreter")


def _read_as_nobody(needed: Collection[str]) -> None:
    _become_nobody()
    if not all(os.access(workdir, os.X_OK if os.path.isdir(workdir) else os.R_OK) for workdir in needed):
        raise PermissionError


def _chown_to_nobody(workdir: str, confinement: Confinement) -> None:
    if confinement.user and os.geteuid() == 0:
        os.chown(workdir, _NOBODY, _NOBODY)


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
    """Drop every capability, with no way to regain one."""
    for capability in range(_CAPABILITIES):
        with contextlib.suppress(OSError):
            call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
