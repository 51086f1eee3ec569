"""A system call filter (Linux, seccomp) for a process that only computes.

It needs no privileges. It allows what a Python program needs to compute, use files and run threads, and refuses every
call that is not listed, including those of future kernels. So a program has no sockets but connected pairs, starts,
signals and inspects no other process, locks no whole files (which would need no right to write them), uses no memory
that escapes the limits, and changes no mounts, namespaces, keys or clocks.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import struct
import sys

from assay.sandbox.linux import call

# Offsets in the kernel's struct seccomp_data.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

# Instructions of classic BPF as the kernel's linux/bpf_common.h numbers them.
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_PR_SET_SECCOMP, _FILTER_MODE = 22, 2
_X32_NUMBERS = 0x40000000

# Numbers are (x86-64, AArch64), from the kernel's tables; None where an architecture has no such call.
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "poll": (7, None), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66),
    "access": (21, None), "pipe": (22, None), "select": (23, None), "sched_yield": (24, 124), "mremap": (25, 216),
    "msync": (26, 227), "mincore": (27, 232), "madvise": (28, 233), "dup": (32, 23), "dup2": (33, None),
    "pause": (34, None), "nanosleep": (35, 101), "getitimer": (36, 102), "alarm": (37, None), "setitimer": (38, 103),
    "getpid": (39, 172), "sendfile": (40, 71), "socketpair": (53, 199), "recvfrom": (45, 207), "shutdown": (48, 210),
    "getsockname": (51, 204), "getpeername": (52, 205), "setsockopt": (54, 208), "getsockopt": (55, 209),
    "exit": (60, 93), "wait4": (61, 260), "waitid": (247, 95), "uname": (63, 160),
    "fsync": (74, 82), "fdatasync": (75, 83), "truncate": (76, 45), "ftruncate": (77, 46), "getdents": (78, None),
    "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "rename": (82, None),
    "mkdir": (83, None), "rmdir": (84, None), "creat": (85, None), "link": (86, None), "unlink": (87, None),
    "symlink": (88, None), "readlink": (89, None), "umask": (95, 166), "gettimeofday": (96, 169),
    "getrlimit": (97, 163), "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153), "getuid": (102, 174),
    "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177), "getpgid": (121, 155), "getppid": (110, 173),
    "getpgrp": (111, None), "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150),
    "getsid": (124, 156), "rt_sigpending": (127, 136), "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132), "statfs": (137, 43), "fstatfs": (138, 44), "getpriority": (140, 141),
    "sched_getparam": (143, 121), "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "arch_prctl": (158, None), "gettid": (186, 178), "getxattr": (191, 8),
    "lgetxattr": (192, 9), "fgetxattr": (193, 10), "listxattr": (194, 11), "llistxattr": (195, 12),
    "flistxattr": (196, 13), "time": (201, None), "futex": (202, 98), "sched_getaffinity": (204, 123),
    "set_tid_address": (218, 96), "restart_syscall": (219, 128), "fadvise64": (221, 223), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "exit_group": (231, 94), "epoll_wait": (232, None),
    "epoll_ctl": (233, 21), "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_pwait": (281, 22),
    "openat": (257, 56), "mkdirat": (258, 34), "newfstatat": (262, 79), "unlinkat": (263, 35), "renameat": (264, 38),
    "linkat": (265, 37), "symlinkat": (266, 36), "readlinkat": (267, 78), "faccessat": (269, 48),
    "pselect6": (270, 72), "ppoll": (271, 73), "set_robust_list": (273, 99), "fallocate": (285, 47),
    "dup3": (292, 24), "pipe2": (293, 59), "preadv": (295, 69), "pwritev": (296, 70), "preadv2": (327, 286),
    "pwritev2": (328, 287), "getcpu": (309, 168), "renameat2": (316, 276), "getrandom": (318, 278),
    "membarrier": (324, 283), "statx": (332, 291), "rseq": (334, 293), "faccessat2": (439, 439),
    "close_range": (436, 436), "mbind": (237, 235), "get_mempolicy": (239, 236), "copy_file_range": (326, 285),
    "eventfd2": (290, 19),
}  # fmt: skip
CHANGES_OF_FILES: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "fchmodat": (268, 53), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
}  # fmt: skip
"""Changes of a file's metadata: allowed if no file but the program's own belongs to its user."""
CONDITIONAL: dict[str, tuple[int, int]] = {
    "clone": (56, 220), "tgkill": (234, 131), "prlimit64": (302, 261), "sched_setaffinity": (203, 122),
    "fcntl": (72, 25), "ioctl": (16, 29), "prctl": (157, 167), "sendto": (44, 206), "clone3": (435, 435),
    "mknodat": (259, 33), "setpriority": (141, 140), "sched_rr_get_interval": (148, 127),
}  # fmt: skip
_NEWEST_KNOWN = 451
"""A call with a greater number must fail with ENOSYS, so that the C library falls back to an older one."""

_CLONE_THREAD = 0x10000
_FCNTL_COMMANDS = (
    0, 1, 2, 3, 4,  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL
    5, 6, 7, 36, 37, 38,  # F_GETLK, F_SETLK, F_SETLKW and the same for open files
    1030, 1032,  # F_DUPFD_CLOEXEC, F_GETPIPE_SZ
)  # fmt: skip
"""Left out: signals when a file is ready, leases, change notifications, seals, larger pipes."""
_IOCTL_COMMANDS = (
    0x5401, 0x802C542A, 0x5413,  # TCGETS, TCGETS2, TIOCGWINSZ: is it a terminal?
    0x541B, 0x5421, 0x5450, 0x5451,  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
)  # fmt: skip
_PRCTL_COMMANDS = (15, 16, 0x53564D41)
"""PR_SET_NAME, PR_GET_NAME, PR_SET_VMA: names of threads and memory."""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse_system_calls(*, changes_of_files: bool) -> None:
    """Apply the filter to this process for good. ``PR_SET_NO_NEW_PRIVS`` must be set.

    Args:
        changes_of_files: whether the process may change modes, owners and times of files.

    Raises:
        OSError: the machine does not support the filter.
    """
    code = _filter(changes_of_files) + _for_process(os.getpid())
    program = _FilterProgram(len(code) // 8, code)
    call("prctl", _PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0)


@functools.cache
def _filter(changes_of_files: bool) -> bytes:
    """The part of the filter that is the same for all processes."""
    column, architecture = _machine()
    code = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_IF_EQUAL, architecture, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    for numbers in (ALLOWED | CHANGES_OF_FILES if changes_of_files else ALLOWED).values():
        if (number := numbers[column]) is not None:
            code += [_instruction(_JUMP_IF_EQUAL, number, 0, 1), _instruction(_RETURN, _ALLOW)]
    code += _if_argument("clone", 0, _CLONE_THREAD, jump=_JUMP_IF_ANY_BIT)
    code += _if_argument("prlimit64", 0, 0)
    code += _if_argument("sched_setaffinity", 0, 0)
    code += _if_argument("fcntl", 1, *_FCNTL_COMMANDS)
    code += _if_argument("ioctl", 1, *_IOCTL_COMMANDS)
    code += _if_argument("prctl", 0, *_PRCTL_COMMANDS)
    code += _if_zero("sendto", _ARGUMENTS + 32, _ARGUMENTS + 36)  # a datagram could be sent to any socket's address
    code += _if_zero("setpriority", _ARGUMENTS, _ARGUMENTS + 8)  # its own
    code += _if_zero("sched_rr_get_interval", _ARGUMENTS)
    code += _if_named_pipe("mknodat", 2)
    return b"".join(code)


def _for_process(own_pid: int) -> bytes:
    column, _ = _machine()
    code = _if_argument("tgkill", 0, own_pid)
    code += [
        _instruction(_JUMP_IF_EQUAL, CONDITIONAL["clone3"][column], 1, 0),  # its flags cannot be seen; clone's can
        _instruction(_JUMP_IF_AT_LEAST, _NEWEST_KNOWN + 1, 0, 1),  # x32's numbers are greater, too
        _refusal(errno.ENOSYS),
        _refusal(errno.EPERM),
    ]
    return b"".join(code)


def _machine() -> tuple[int, int]:
    """The column in the tables above, and the kernel's number of the architecture."""
    machine = os.uname().machine
    if not sys.platform.startswith("linux") or machine not in _ARCHITECTURES or sys.maxsize < 2**32:
        raise OSError(errno.ENOSYS, f"no filter is known for {sys.platform} on {machine}")
    return _ARCHITECTURES[machine]


def _if_argument(name: str, position: int, *values: int, jump: int = _JUMP_IF_EQUAL) -> list[bytes]:
    """Allow a call if the lower 32 bits of an argument have one of these values."""
    decision = [_instruction(_LOAD, _ARGUMENTS + 8 * position)]
    for value in values:
        decision += [_instruction(jump, value, 0, 1), _instruction(_RETURN, _ALLOW)]
    return _decide(name, decision)


def _if_zero(name: str, *offsets: int) -> list[bytes]:
    """Allow a call if the words at all these offsets are 0."""
    decision = [_instruction(_RETURN, _ALLOW)]
    for offset in reversed(offsets):
        decision = [_instruction(_LOAD, offset), _instruction(_JUMP_IF_EQUAL, 0, 0, len(decision)), *decision]
    return _decide(name, decision)


def _if_named_pipe(name: str, position: int) -> list[bytes]:
    """Allow a call that makes a file if its mode says that it is a named pipe."""
    decision = [
        _instruction(_LOAD, _ARGUMENTS + 8 * position),
        _instruction(_JUMP_IF_ANY_BIT, 0o170000 & ~stat.S_IFIFO, 2, 0),
        _instruction(_JUMP_IF_ANY_BIT, stat.S_IFIFO, 0, 1),
        _instruction(_RETURN, _ALLOW),
    ]
    return _decide(name, decision)


def _decide(name: str, decision: list[bytes]) -> list[bytes]:
    column, _ = _machine()
    return [
        _instruction(_JUMP_IF_EQUAL, CONDITIONAL[name][column], 0, len(decision) + 1),
        *decision,
        _refusal(errno.EPERM),
    ]


def _refusal(error: int) -> bytes:
    return _instruction(_RETURN, _ERROR | error)


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
