"""The durable record of a run: every response, on disk before it counts.

Written by one process through :class:`Journal`; read by anyone, at any time, through :func:`records` and :func:`check`.

It may import ``types``, ``errors`` and ``_util``.
"""

from assay.journal.files import find_journals
from assay.journal.reader import DamagedRegion, JournalReport, check, records
from assay.journal.records import (
    SCHEMA_VERSION,
    Finalised,
    Finished,
    Header,
    Record,
    ResponseRecord,
    encode_record,
)
from assay.journal.writer import Journal

__all__ = [
    "SCHEMA_VERSION",
    "DamagedRegion",
    "Finalised",
    "Finished",
    "Header",
    "Journal",
    "JournalReport",
    "Record",
    "ResponseRecord",
    "check",
    "encode_record",
    "find_journals",
    "records",
]
