"""Remembers whose programs ran when a run's process died, so that a program that kills it does not do so for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from assay.errors import SandboxError, StorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

_MOST_DEATHS = 2


class _Kept(msgspec.Struct, frozen=True):
    """What the file says; samples are named by task and document."""

    deaths: dict[str, int] = {}
    running: list[str] = []


class ProgramDeaths:
    """A file beside a run's journal that names the samples whose programs run, and what came of earlier ones.

    A sample whose programs ran when the process died is suspected. Its programs run alone after that, so that no other
    sample is suspected with it, and never again if the process died once more.
    """

    def __init__(self, path: Path, *, forget: bool = False) -> None:
        """Read the file, if there is one.

        Args:
            path: the file; it is made when the first program runs.
            forget: whether to try again what has led to the process's death twice.
        """
        self._path = path
        kept = _Kept() if forget else _read(path)
        self._deaths = Counter(kept.deaths) + Counter(kept.running)
        self._running: list[str] = []
        self._change = asyncio.Condition()
        self._one_alone = False

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Whoever leaves this block in whatever way has not died of a program."""
        try:
            yield
        finally:
            self._running.clear()
            if self._deaths or self._path.exists():
                self._write()

    @contextlib.asynccontextmanager
    async def running(self, task: str, doc_id: int) -> AsyncIterator[None]:
        """In this block a sample's programs run.

        Raises:
            SandboxError: they are not to run any more.
            StorageError: that they run cannot be noted.
        """
        sample = f"{task}/{doc_id}"
        deaths = self._deaths[sample]
        if deaths >= _MOST_DEATHS:
            raise SandboxError(
                f"Assay's process died {deaths} times while this sample's programs ran; they are not run again "
                "(--retry-failed does)"
            )
        async with self._change:
            await self._change.wait_for(lambda: not self._one_alone and not (deaths and self._running))
            self._one_alone = deaths > 0
            self._running.append(sample)
            self._write()
        try:
            yield
        finally:
            async with self._change:
                self._one_alone = False
                if sample in self._running:
                    self._running.remove(sample)
                    self._write()
                self._change.notify_all()

    def _write(self) -> None:
        new = self._path.with_name(self._path.name + ".new")
        try:
            if not self._deaths and not self._running:
                self._path.unlink(missing_ok=True)
                return
            new.parent.mkdir(parents=True, exist_ok=True)  # it may have been removed while the run went on
            new.write_bytes(msgspec.json.encode(_Kept(dict(self._deaths), self._running)))
            os.replace(new, self._path)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error.strerror}") from error


def _read(path: Path) -> _Kept:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return _Kept()
