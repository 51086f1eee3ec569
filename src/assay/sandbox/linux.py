"""Calls of the C library that Python has no function for."""

from __future__ import annotations

import ctypes
import os

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
"""Options of prctl."""


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library by its name.

    Raises:
        OSError: it failed.
    """
    result: int = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def system_call(number: int, *arguments: object) -> int:
    """Make a system call that the C library has no function for.

    Raises:
        OSError: it failed.
    """
    return call("syscall", ctypes.c_long(number), *arguments)
