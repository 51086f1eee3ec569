"""A file access rule (Linux, Landlock): the process may read every file, and write only in a few folders.

It needs no privileges and works where namespaces are not available. It also keeps the process from inspecting processes
that are not under the same rule, also through ``/proc``, and on newer kernels from signalling them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from assay.sandbox.linux import system_call

# Numbers are the same on all architectures; linux/landlock.h.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1

_WRITE_FILE, _TRUNCATE, _DEVICE_COMMANDS = 1 << 1, 1 << 14, 1 << 15
_CHANGES_OF_FOLDERS = sum(1 << bit for bit in (4, 5, 7, 8, 10, 12, 13))
"""Removing and making folders, files, pipes and symbolic links, and moving them between folders."""
_NEVER = sum(1 << bit for bit in (6, 9, 11))
"""Making character devices, sockets and block devices."""
_TCP_BIND, _TCP_CONNECT = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

_OLDEST_USEFUL = 3
"""The first version that can refuse truncation."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")


def allow_changes_only_in(*folders: str) -> None:
    """Apply the rule to this process for good. ``PR_SET_NO_NEW_PRIVS`` must be set.

    Raises:
        OSError: the kernel has no Landlock, or one that is too old.
    """
    version = _version()
    devices = _DEVICE_COMMANDS if version >= 5 else 0
    handled = _WRITE_FILE | _TRUNCATE | _CHANGES_OF_FOLDERS | _NEVER | devices
    network = _TCP_BIND | _TCP_CONNECT if version >= 4 else 0
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if version >= 6 else 0
    attributes = struct.pack("=QQQ", handled, network, scoped)[: 24 if scoped else 16 if network else 8]
    ruleset = system_call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    try:
        for folder in filter(os.path.exists, folders):
            _allow(ruleset, folder, _WRITE_FILE | _TRUNCATE | _CHANGES_OF_FOLDERS)
        for device in filter(os.path.exists, _DEVICES):
            _allow(ruleset, device, _WRITE_FILE | devices)
        system_call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)


def _version() -> int:
    version = system_call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    if version < _OLDEST_USEFUL:
        raise OSError(errno.ENOSYS, f"Landlock is too old here: {version}")
    return version


def _allow(ruleset: int, path: str, rights: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, beneath)
        system_call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))
    finally:
        os.close(beneath)
