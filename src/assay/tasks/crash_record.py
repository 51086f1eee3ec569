"""Records at which samples a run's process died, so that no program or scorer kills it again and again."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from pathlib import Path

_MOST_CRASHES = 2


class CrashRecord:
    """A file beside a run's journal: a line for each sample that was being scored when the process died, or is now.

    It costs two small writes a sample, and is for tasks that run code: the model's, or their own. If it cannot be
    written, the run goes on without it.

    A sample that was being scored when the process died is suspected. Its programs run alone after that, so that no
    other sample is suspected with it, and never again if the process died once more.
    """

    def __init__(self, path: Path, *, forget: bool = False) -> None:
        """Read the file, if there is one.

        Args:
            path: the file; it is made when the first sample is scored.
            forget: score even the samples at which the process died twice.
        """
        self._path = path
        self._crashes = Counter(() if forget else _read(path))
        self._kept = _lines(self._crashes.elements())
        self._under_way: list[str] = []
        self._longest = 0
        self._file: int | None = None
        self._programs_of = 0
        self._one_alone = False
        self._change = asyncio.Condition()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the file open in this block. However the block is left, the process has not died."""
        try:
            yield
        finally:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            with suppress(OSError):
                if self._crashes:
                    os.truncate(self._path, len(self._kept))
                else:
                    self._path.unlink(missing_ok=True)

    def refusal(self, task: str, doc_id: int) -> str | None:
        """Why a sample is not scored any more; None if it is."""
        crashes = self._crashes[_name(task, doc_id)]
        if crashes < _MOST_CRASHES:
            return None
        return (
            f"Assay's process died {crashes} times while this sample was scored; it is not scored again "
            "(--retry-failed does)"
        )

    @contextmanager
    def scoring(self, task: str, doc_id: int) -> Iterator[None]:
        """Record that a sample is being scored in this block."""
        sample = _name(task, doc_id)
        self._under_way.append(sample)
        self._write()
        try:
            yield
        finally:
            self._under_way.remove(sample)
            self._write()

    @asynccontextmanager
    async def running_programs(self, task: str, doc_id: int) -> AsyncIterator[None]:
        """Run a sample's programs in this block: alone, if it is suspected."""
        suspected = self._crashes[_name(task, doc_id)] > 0
        async with self._change:
            await self._change.wait_for(lambda: not self._one_alone and not (suspected and self._programs_of))
            self._one_alone = suspected
            self._programs_of += 1
        try:
            with self.scoring(task, doc_id):
                yield
        finally:
            self._one_alone = False
            self._programs_of -= 1
            async with self._change:
                self._change.notify_all()

    def _write(self) -> None:
        lines = _lines(self._under_way)
        self._longest = max(self._longest, len(lines))
        with suppress(OSError):
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
                os.pwrite(self._file, self._kept, 0)
            os.pwrite(self._file, lines.ljust(self._longest), len(self._kept))


def _name(task: str, doc_id: int) -> str:
    return f"{task!r} {doc_id}"


def _lines(samples: Iterable[str]) -> bytes:
    return "".join(f"{sample}\n" for sample in samples).encode()


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    return [line for line in lines if line.strip()]
