"""A program, its limits, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Program:
    """Python source, executed in an empty namespace."""

    source: str
    seconds: float
    """Wall-clock limit. Then an exception is raised in the program; a second later it is killed."""
    setup: str = ""
    """Trusted source, executed before the program in the same process but in another namespace."""
    imports: tuple[str, ...] = ()
    """Modules to import first, if they are installed. This does not count as the program's time."""


@dataclass(frozen=True)
class Limits:
    """What one program may use."""

    memory: int = 4 << 30
    """Bytes of address space."""
    storage: int = 64 << 20
    """Bytes of one file; with namespaces, of all the program's files together."""
    open_files: int = 256
    threads: int = 128
    """Threads and processes, if the system counts them for each program."""


class Ending(StrEnum):
    """How a program ended."""

    FINISHED = "finished"
    """It ran to its last line."""
    RAISED = "raised"
    """It ended with an exception, ``SystemExit`` included."""
    TIMED_OUT = "timed_out"
    DIED = "died"
    """Its process was gone before the last line: ``os._exit``, a crash, a signal."""


@dataclass(frozen=True)
class RunResult:
    """The result of a program."""

    ending: Ending
    message: str = ""
    """If the program raised: the exception's text, truncated. The program wrote it, so do not trust it."""


@dataclass(frozen=True)
class Confinement:
    """How programs are confined on this machine."""

    system_calls: bool
    """A filter refuses sockets, other processes, signals to others and whatever would undo the rest."""
    files: bool
    """A rule lets programs change files in their own folder only, and hides other processes' memory from them."""
    namespaces: bool
    """Programs see no network and no other process, and can write only to a file system in memory that ends with them.
    """
    user: bool
    """Programs run as the user ``nobody``."""

    @property
    def cuts_network(self) -> bool:
        """Whether programs are kept from the network."""
        return self.system_calls or self.namespaces

    def gaps(self, *, as_root: bool) -> tuple[str, ...]:
        """What programs can do here that they should not, in words for a message.

        Args:
            as_root: whether Assay was started as root.
        """
        found = {
            "reach the network": not self.cuts_network,
            "write files outside their folder": not (self.files or self.namespaces),
            "see and signal other processes": not (self.system_calls or self.namespaces),
            "fill the disk": not self.namespaces,
            "act as root": as_root and not self.user,
        }
        return tuple(words for words, is_open in found.items() if is_open)
