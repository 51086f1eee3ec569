"""Every error that Assay raises on purpose.

The tree, with the exit code that the command line gives each branch (all codes: ``docs/exit-codes.md``)::

    AssayError
    ├── UsageError                    2   what is asked for cannot be done
    │   ├── SpecificationError            a value in the specification is out of range or contradictory
    │   ├── UnknownTaskError              no task, group or tag of that name
    │   ├── UnknownMetricError            the task has no such metric key
    │   ├── UnsupportedTaskError          the task needs something the chosen endpoint cannot give
    │   ├── TaskConfigError               a task's YAML or Python could not be read
    │   ├── DataNotFoundError             a task's data set cannot be found
    │   ├── MissingDependencyError        an optional package is not installed
    │   ├── ModelNotServedError           the server does not serve that model
    │   ├── ReplicasDifferError           endpoints of one run serve different models
    │   ├── MetricFailedError             some of a run's metrics fail on it; the statistics of the others are written
    │   ├── SandboxError                  programs that a model writes cannot be run on this machine
    │   └── FileFormatError               a file given as input is damaged or of another kind
    ├── OutputError                   2   results cannot be written where asked
    │   ├── FewerStatisticsError          a HELM run's statistics would be replaced by fewer
    │   └── StorageError             74   the disk is full or fails; what is on it is kept
    ├── JournalError                  2   the record of a run cannot be used
    │   ├── JournalLockedError            another process is writing it
    │   └── JournalVersionError           a newer Assay wrote it
    ├── UnjudgeableError              4   no verdict can be given
    │   ├── ServerUnreachableError        nothing answers at the base URL
    │   ├── ServerRefusedError            the server answers, but refuses every request (key, permission, …)
    │   ├── ServerChangedError            the server serves another model than when the run began
    │   ├── NothingMeasuredError          not one sample could be scored
    │   ├── SamplesFailedError            some samples have no score, and no check gave a verdict
    │   └── BaselineMismatchError         the baseline is of another task version, other settings or other data
    └── RunInterrupted              130   stopped from outside; the run can be resumed

A message is one line for the person who reads it: what happened, with which value, what to do.
"""

from __future__ import annotations


class AssayError(Exception):
    """Base of every error that Assay raises on purpose."""

    exit_code = 70
    """Exit code of the command line when this error ends it (70: internal, as in sysexits.h)."""


class UsageError(AssayError):
    """What is asked for cannot be done."""

    exit_code = 2


class SpecificationError(UsageError):
    """A value in the specification is out of range or contradicts another."""


class UnknownTaskError(UsageError):
    """No task, group or tag has that name."""


class UnknownMetricError(UsageError):
    """The task has no such metric key."""


class UnsupportedTaskError(UsageError):
    """The task needs something that the chosen endpoint cannot give."""


class TaskConfigError(UsageError):
    """A task's YAML or Python could not be read."""


class DataNotFoundError(UsageError):
    """A task's data set cannot be found."""


class MissingDependencyError(UsageError):
    """An optional package is not installed."""


class ModelNotServedError(UsageError):
    """The server does not serve that model."""


class ReplicasDifferError(UsageError):
    """Endpoints of one run serve different models, or the same one with different context lengths."""


class MetricFailedError(UsageError):
    """Some of a HELM run's metrics fail on it; the statistics of the others are written."""


class SandboxError(UsageError):
    """Programs that a model writes cannot be run on this machine."""


class FileFormatError(UsageError):
    """A file given as input is damaged or of another kind."""


class OutputError(AssayError):
    """Results cannot be written where asked."""

    exit_code = 2


class FewerStatisticsError(OutputError):
    """A HELM run's statistics would be replaced by fewer, and that is not allowed."""


class StorageError(OutputError):
    """The disk is full or fails; what is on it is kept."""

    exit_code = 74
    """Input or output failed, as in sysexits.h."""


class JournalError(AssayError):
    """The record of a run cannot be used."""

    exit_code = 2


class JournalLockedError(JournalError):
    """Another process is writing this journal."""


class JournalVersionError(JournalError):
    """A newer Assay wrote this journal."""


class UnjudgeableError(AssayError):
    """No verdict can be given."""

    exit_code = 4


class ServerUnreachableError(UnjudgeableError):
    """Nothing answers at the base URL."""


class ServerRefusedError(UnjudgeableError):
    """The server answers but refuses every request."""


class ServerChangedError(UnjudgeableError):
    """The server serves another model than when the run began."""


class NothingMeasuredError(UnjudgeableError):
    """Not one sample could be scored."""


class SamplesFailedError(UnjudgeableError):
    """Some samples have no score, and no check gave a verdict."""


class BaselineMismatchError(UnjudgeableError):
    """The baseline is of another task version, other settings or other data."""


class RunInterrupted(AssayError):  # noqa: N818 - named for what happened, like KeyboardInterrupt
    """The run was stopped from outside and can be resumed."""

    def __init__(self, message: str, exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """128 plus the signal's number, as a shell reports it."""
