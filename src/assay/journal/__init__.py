"""The durable record of a run: every response is on disk before it counts.

One process writes it through :class:`Journal`. Anyone may read it at any time, through :func:`records`, :func:`check`
and :func:`summarise`.

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
from assay.journal.summary import FailedRequest, JournalSummary, TaskSummary, journals_at, summarise
from assay.journal.writer import Journal

__all__ = [
    "SCHEMA_VERSION",
    "DamagedRegion",
    "FailedRequest",
    "Finalised",
    "Finished",
    "Header",
    "Journal",
    "JournalReport",
    "JournalSummary",
    "Record",
    "ResponseRecord",
    "TaskSummary",
    "check",
    "encode_record",
    "find_journals",
    "journals_at",
    "records",
    "summarise",
]
