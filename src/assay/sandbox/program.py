"""A program to be run, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Program:
    """Python source that is executed as a module of its own, with an empty namespace."""

    source: str
    seconds: float
    """Wall-clock time after which an exception is raised in it; a second later it is killed."""
    setup: str = ""
    """Trusted source that is executed before it, in the same process but in another namespace."""
    imports: tuple[str, ...] = ()
    """Modules that are imported before either, where they are installed. Its time does not run meanwhile."""


@dataclass(frozen=True)
class Limits:
    """What one program may use."""

    memory: int = 4 << 30
    """Bytes of address space."""
    storage: int = 64 << 20
    """Bytes of one file; where the program has a file system of its own, of all its files together."""
    open_files: int = 256
    threads: int = 128
    """Threads and processes, where the system counts them for each program."""


class Ending(StrEnum):
    """How a program ended."""

    FINISHED = "finished"
    """It ran to its last line."""
    RAISED = "raised"
    """An exception left it, ``SystemExit`` included."""
    TIMED_OUT = "timed_out"
    DIED = "died"
    """Its process was gone before the last line: ``os._exit``, a crash, a signal."""


@dataclass(frozen=True)
class RunResult:
    """What became of a program."""

    ending: Ending
    message: str = ""
    """For one that raised: the exception's text, cut. Written by the program, so not to be trusted."""


@dataclass(frozen=True)
class Confinement:
    """What keeps programs in, as far as the machine allows it."""

    system_calls: bool
    """A filter refuses sockets, other processes, signals to others and whatever would undo the rest."""
    files: bool
    """A rule lets programs change files in their own folder only, and not look into other processes."""
    namespaces: bool
    """There is no network, no other process, and no file system that can be written but one in memory that vanishes
    with the program."""
    user: bool
    """Programs run as the user ``nobody``, not as the user who started this."""

    @property
    def cuts_network(self) -> bool:
        """Whether programs are kept from the network."""
        return self.system_calls or self.namespaces

    def gaps(self, *, as_root: bool) -> tuple[str, ...]:
        """What programs can do that they should not, because the machine lacks the means; in words for its user.

        Args:
            as_root: whether root started this.
        """
        found = {
            "reach the network": not self.cuts_network,
            "write files outside their folder": not (self.files or self.namespaces),
            "see and signal other processes": not (self.system_calls or self.namespaces),
            "fill the disk": not self.namespaces,
            "act as root": as_root and not self.user,
        }
        return tuple(words for words, is_open in found.items() if is_open)
