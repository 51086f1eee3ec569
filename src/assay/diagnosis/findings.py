"""The result of a triage: findings, each a cause (:mod:`assay.diagnosis.causes`) with figures, examples and advice."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from assay.diagnosis.causes import FAULTS, TITLES, Cause


class Confidence(StrEnum):
    """How sure a finding is."""

    CERTAIN = "certain"
    """Seen directly."""
    LIKELY = "likely"
    POSSIBLE = "possible"


class Example(msgspec.Struct, frozen=True):
    """A sample that shows a finding."""

    task: str
    doc_id: int
    shown: str = ""
    """The part that shows the finding; unfiltered text of a model or server."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One possible cause and the evidence for it."""

    cause: Cause
    evidence: str
    """What was seen, with its figures, in one line."""
    advice: str
    """What to do about it."""
    samples: int
    """How many samples are affected."""
    of: int
    """How many samples were examined."""
    confidence: Confidence
    is_measured: bool = False
    """Whether the repaired answers were scored by the task's own filter and metric; else ``score_repaired`` is an
    estimate."""
    is_cause: bool = True
    """Whether it can explain a material part of the loss; if not, it is a remark."""
    weight: float = 0.0
    """Its rank among findings: the share of the loss that it can explain, reduced if it is not certain."""
    score: float | None = None
    """Mean score of the examined samples."""
    score_without: float | None = None
    """Mean score without the affected samples."""
    score_repaired: float | None = None
    """Mean score if the affected samples scored as in the baseline or, without one, as the others do."""
    examples: tuple[Example, ...] = ()
    """Three at most."""

    @property
    def title(self) -> str:
        """The cause as text."""
        return TITLES[self.cause]

    @property
    def is_certain_fault(self) -> bool:
        """Whether it is reported even if every check passes."""
        return self.cause in FAULTS and self.confidence is Confidence.CERTAIN

    @property
    def explains(self) -> float | None:
        """The gain in score if the affected samples were repaired; None if that is not known."""
        if self.score is None or self.score_repaired is None:
            return None
        return self.score_repaired - self.score


class LossReference(StrEnum):
    """What the loss is measured against."""

    BASELINE = "baseline"
    CHECK = "check"
    """A threshold that is not met."""
    FULL = "full"
    """The full score, if nothing tells what the model can reach."""


class CauseShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one cause costs, beyond what those upstream of it cost."""

    cause: Cause
    title: str
    gain: float
    """The score that its repair adds."""
    low: float
    high: float
    """A 95 % interval of the gain, over documents."""
    is_measured: bool
    """Whether the repaired texts were scored; else the gain is an estimate."""


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """From the score to what it should be."""

    score: float
    shares: tuple[CauseShare, ...]
    """Upstream first."""
    unexplained: float
    """What is missing after all repairs; negative if they come to more than the target."""
    target: float
    """The score of the baseline, the least that the check demands, or the full score."""
    target_is: LossReference


class Triage(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run scored as it did."""

    run: str = ""
    """The results file."""
    baseline: str | None = None
    metrics: dict[str, str] = {}
    """By task, the metric key that was used."""
    samples: int
    """How many samples were examined, failed ones included."""
    score: float | None
    """Mean over the scored samples."""
    baseline_score: float | None = None
    """The baseline's mean over the same documents."""
    unmet_checks: int = 0
    """How many checks of the run do not pass."""
    headline: str
    """One line: the most probable cause, or that none was found."""
    waterfall: Waterfall | None = None
    """How the causes share the loss; None if nothing is to be explained."""
    findings: tuple[Finding, ...] = ()
    """Causes, the most probable first; then remarks."""

    @property
    def recorded(self) -> dict[str, Any]:
        """Plain data for the run's results file, without the file's own name."""
        record: dict[str, Any] = msgspec.to_builtins(self)
        del record["run"]
        return record

    @property
    def causes(self) -> tuple[Finding, ...]:
        """The findings that can explain a material part of the loss."""
        return tuple(finding for finding in self.findings if finding.is_cause)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that are certain faults, even if they cost no score."""
        return tuple(finding for finding in self.findings if finding.is_certain_fault)
