"""A filter on system calls (Linux, seccomp) for a process that is to compute and nothing else.

It needs no privileges. Refused are sockets, starting processes, replacing the program, signals to and views into other
processes, and whatever could change mounts or namespaces. Threads, files and socket pairs stay.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

# Offsets in the kernel's struct seccomp_data.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16

# Instructions of classic BPF as the kernel's linux/bpf_common.h numbers them.
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_CLONE_THREAD = 0x10000
_X32_NUMBERS = 0x40000000

_PR_SET_SECCOMP, _FILTER_MODE = 22, 2

# (x86-64, AArch64), from the kernel's tables; None where an architecture has no such call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "mount_setattr": (442, 442),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
}
_CLONE, _CLONE3, _TGKILL, _PRLIMIT = (56, 220), (435, 435), (234, 131), (302, 261)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse_system_calls() -> None:
    """Put the filter on this process, for good. It must not be able to gain privileges any more.

    Raises:
        OSError: the machine has no such filters.
    """
    code = _filter(os.getpid())
    program = _FilterProgram(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _filter(own_pid: int) -> bytes:
    machine = os.uname().machine
    if not sys.platform.startswith("linux") or machine not in _ARCHITECTURES or sys.maxsize < 2**32:
        raise OSError(errno.ENOSYS, f"no filter is known for {sys.platform} on {machine}")
    column, architecture = _ARCHITECTURES[machine]
    code = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_IF_EQUAL, architecture, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        code += [_instruction(_JUMP_IF_AT_LEAST, _X32_NUMBERS, 0, 1), _refusal(errno.ENOSYS)]
    for numbers in _REFUSED.values():
        if (number := numbers[column]) is not None:
            code += [_instruction(_JUMP_IF_EQUAL, number, 0, 1), _refusal(errno.EPERM)]
    # The C library falls back on clone, whose flags a filter can see.
    code += [_instruction(_JUMP_IF_EQUAL, _CLONE3[column], 0, 1), _refusal(errno.ENOSYS)]
    code += _unless_first_argument(_CLONE[column], _JUMP_IF_ANY_BIT, _CLONE_THREAD)
    code += _unless_first_argument(_TGKILL[column], _JUMP_IF_EQUAL, own_pid)
    code += _unless_first_argument(_PRLIMIT[column], _JUMP_IF_EQUAL, 0)
    code.append(_instruction(_RETURN, _ALLOW))
    return b"".join(code)


def _unless_first_argument(number: int, jump: int, operand: int) -> list[bytes]:
    """Refuse a call unless its first argument, as far as its lower half goes, meets a condition."""
    return [
        _instruction(_JUMP_IF_EQUAL, number, 0, 4),
        _instruction(_LOAD, _FIRST_ARGUMENT),
        _instruction(jump, operand, 1, 0),
        _refusal(errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]


def _refusal(error: int) -> bytes:
    return _instruction(_RETURN, _ERROR | error)


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
