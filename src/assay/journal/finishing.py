"""Marks a run as finished after its journal is closed and its outcome has been reported."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from assay.errors import JournalLockedError
from assay.journal.files import lock
from assay.journal.frames import encode_frame
from assay.journal.records import Finished, encode_record

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)


def finish_journal(path: Path, failed: int) -> None:
    """Record in a closed journal that the run's results are written and reported.

    Failing to do so is not an error: the run can then be resumed, and the same command sends no request and reports its
    outcome again.

    Args:
        path: the journal.
        failed: samples without a response.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            lock(fd, path)
            frame = encode_frame(encode_record(Finished(failed=failed, time=time.time())))
            os.pwrite(fd, frame, os.fstat(fd).st_size)
            os.fdatasync(fd)
        finally:
            os.close(fd)
    except JournalLockedError:
        return  # another process has resumed it
    except OSError as error:
        _log.warning("%s cannot be marked as finished (%s); the results are there", path, error.strerror)
