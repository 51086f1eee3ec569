"""The exit codes as the help shows them, and as ``git bisect run`` takes them.

The codes themselves are in :mod:`assay.errors` (errors) and :class:`assay.Verdict` (verdicts); docs/exit-codes.md says
which command ends with which.
"""

from __future__ import annotations

EXIT_CODES = """\b
Exit codes:
  0  done, and every check met
  1  a check is not met
  2  cannot be done as asked
  3  inconclusive: the budget ended before the evidence sufficed
  4  could not be judged: server gone, or samples without a score
  70  a fault of Assay's own
  74  the disk is full or fails; the answers on it are kept
  130, 143  interrupted; the same command goes on where it stopped
  141  standard output was closed"""
"""Shown below the help of ``assay`` and of ``assay gate``."""

_SKIP = 125
_STOP_BISECTING = 128
_BISECT = {0: 0, 1: 1, 3: _SKIP, 4: _SKIP}
"""A gate's exit code -> the one for ``git bisect run``, which takes most numbers below 128 for a bad commit."""


def code_for_git_bisect(code: int) -> int:
    """The exit code for ``git bisect run`` in place of a gate's."""
    return _BISECT.get(code, _STOP_BISECTING)
