"""Group commit: what was written is made to survive a power cut, by a thread, a few times a second at most."""

from __future__ import annotations

import os
import threading

# macOS has no fdatasync.
_sync = os.fdatasync if hasattr(os, "fdatasync") else os.fsync


class GroupCommit:
    """Calls fdatasync on a file in the background, at most once an interval, and only after something was written."""

    def __init__(self, fd: int, interval: float = 0.5) -> None:
        """Prepare; the first request starts the thread.

        Args:
            fd: The file; it must stay open until :meth:`stop` has returned.
            interval: Seconds between two syncs.
        """
        self._fd = fd
        self._interval = interval
        self._written = threading.Event()
        self._stopping = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="assay-journal-sync", daemon=True)

    def request(self) -> bool:
        """Have what was written so far synced within about one interval; whether nobody has asked for that yet."""
        if self._written.is_set():
            return False
        self._written.set()
        if self._thread.ident is None:
            self._thread.start()
        return True

    def check(self) -> None:
        """Raise the error of a sync that failed.

        The kernel may have dropped the pages that it could not write, so a later success would prove nothing: once
        failed, this raises for good.

        Raises:
            OSError: What fdatasync said.
        """
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the thread, after one last sync. Does not raise: see :meth:`check`."""
        self._stopping.set()
        self._written.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._commit()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._written.wait()
            self._written.clear()
            self._commit()
            self._stopping.wait(self._interval)

    def _commit(self) -> None:
        try:
            _sync(self._fd)
        except OSError as error:
            self._error = self._error or error
