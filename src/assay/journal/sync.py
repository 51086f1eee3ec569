"""Group commit: a thread syncs what was written to disk, at most twice a second, so that it survives a power cut."""

from __future__ import annotations

import os
import threading

# macOS has no fdatasync.
_sync = os.fdatasync if hasattr(os, "fdatasync") else os.fsync


class GroupCommit:
    """Calls fdatasync on a file in the background, at most once per interval, and only after writes."""

    def __init__(self, fd: int, interval: float = 0.5) -> None:
        """Create it; the first request starts the thread.

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
        """Request a sync within about one interval. Returns whether none was pending yet."""
        if self._written.is_set():
            return False
        self._written.set()
        if self._thread.ident is None:
            self._thread.start()
        return True

    def check(self) -> None:
        """Raise the error if a sync has failed, now and on every later call.

        The kernel may have dropped the pages that it could not write, so a later success would prove nothing.

        Raises:
            OSError: The error of fdatasync.
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
