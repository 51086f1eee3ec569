"""The input of detectors: the facts of a run and its baseline, and the loss to explain."""

from __future__ import annotations

from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING

import msgspec

from assay.diagnosis.facts import OF_SHORT_ANSWERS
from assay.diagnosis.findings import LossReference
from assay.results.check_results import CheckResult, Verdict
from assay.stats.paired import mcnemar, sign_flip_test
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from assay.diagnosis.facts import SampleFacts
    from assay.results.document import ResultsDocument

_SMALLEST_LOSS = 0.01
"""A smaller loss against the baseline needs no explanation."""
_SIGNIFICANT = 0.01
_FEWEST_OTHERS = 10
_LEAST_OTHERS = 0.1


class Twin(msgspec.Struct, frozen=True, kw_only=True):
    """The same document in the baseline."""

    score: float | None
    facts: SampleFacts | None = None
    """None if only the baseline's scores are known."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier run of the same tasks."""

    source: str
    twins: dict[tuple[str, int], Twin]
    """By task and document number of the run under triage."""
    targets: dict[int, tuple[int | None, str]] = {}
    """By document (its hash), the hash of its right answer and, if it is a short one, the answer."""
    mismatches: dict[str, tuple[str, ...]] = {}
    """By task, messages on differences other than the answers."""
    partial: dict[str, str] = {}
    """By task, a message that the baseline asked only part of the run's documents."""
    lm_eval: str = "?"
    document: ResultsDocument | None = None
    """Its results file; None if only its scores are known."""
    scored_now: dict[str, tuple[float, float]] = {}
    """By task, the old and the new score of the same answers, if they were scored again and differ."""

    @property
    def has_facts(self) -> bool:
        """Whether more than its scores is known."""
        return any(twin.facts is not None for twin in self.twins.values())


class Loss(msgspec.Struct, frozen=True):
    """How much score is missing."""

    against: LossReference
    size: float
    """At least 0."""

    @property
    def is_real(self) -> bool:
        """Whether there is something to explain."""
        return self.size > 0


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What the score would be without some samples, or with them repaired."""

    score: float | None
    without: float | None
    repaired: float | None

    @property
    def gain(self) -> float:
        """How much the score would rise if they were repaired; 0 if that is not known."""
        return 0.0 if self.score is None or self.repaired is None else max(0.0, self.repaired - self.score)


class Evidence:
    """Everything that is known about one run.

    Args:
        facts: the facts of every sample.
        document: the results file.
        baseline: an earlier run, if there is one.
        metrics: keys of the metrics behind the facts' scores.
    """

    def __init__(
        self,
        facts: Sequence[SampleFacts],
        document: ResultsDocument,
        baseline: Baseline | None,
        metrics: Collection[str] = (),
    ) -> None:
        self.facts = facts
        self.document = document
        self.baseline = baseline
        self.metrics = metrics
        self.scored = [sample for sample in facts if sample.score is not None]
        self.generated = [sample for sample in self.scored if sample.is_generated]

    @cached_property
    def score(self) -> float | None:
        """Mean over scored samples."""
        return _mean(_score(sample) for sample in self.scored)

    @property
    def compares_answers(self) -> bool:
        """Whether the metrics compare a short answer with a target, and do not judge programs or whole texts."""
        return all(MetricKey.read(key).metric in OF_SHORT_ANSWERS for key in self.metrics)

    @cached_property
    def pairs(self) -> list[tuple[SampleFacts, Twin]]:
        """Samples that both runs scored."""
        twins = {} if self.baseline is None else self.baseline.twins
        found = ((sample, twins.get(sample.place)) for sample in self.scored)
        return [(sample, twin) for sample, twin in found if twin is not None and twin.score is not None]

    @cached_property
    def baseline_score(self) -> float | None:
        """The baseline's mean over the documents that both scored."""
        return _mean(twin.score for _, twin in self.pairs if twin.score is not None)

    @cached_property
    def differences(self) -> list[float]:
        """For each pair, the run's score minus the baseline's."""
        return [_score(sample) - twin.score for sample, twin in self.pairs if twin.score is not None]

    @cached_property
    def loss_p_value(self) -> float:
        """One-sided p-value of "the run is no worse than the baseline"; 1 without a baseline."""
        differences = [difference for difference in self.differences if difference]
        if all(abs(difference) == 1 for difference in differences):
            return mcnemar(differences.count(-1), differences.count(1), "worse")
        return sign_flip_test(differences, "worse")

    @cached_property
    def loss(self) -> Loss:
        """The loss to explain: against the baseline, else against an unmet threshold, else against the full score."""
        if self.pairs and self.baseline_score is not None:
            ours = _mean(_score(sample) for sample, _ in self.pairs) or 0.0
            size = self.baseline_score - ours
            is_real = size >= _SMALLEST_LOSS and (self.loss_p_value <= _SIGNIFICANT or self._is_judged_worse)
            if is_real or not self.unmet:
                return Loss(LossReference.BASELINE, size if is_real else 0.0)
        if self.score is None:
            return Loss(LossReference.FULL, 0.0)
        if shortfall := self.shortfall:
            return Loss(LossReference.CHECK, max(shortfall, _SMALLEST_LOSS))
        return Loss(LossReference.FULL, 1 - self.score)

    @property
    def shortfall(self) -> float:
        """How far the score is below the minimum of an unmet check; negative if the score alone would pass."""
        score = self.score or 0.0
        return max((check.min - score for check in self.unmet_here if check.min), default=0.0)

    @cached_property
    def unmet(self) -> list[CheckResult]:
        """The run's checks that do not pass."""
        return [check for check in self.document.additions.checks or () if check.verdict is not Verdict.PASS]

    @cached_property
    def unmet_here(self) -> list[CheckResult]:
        """The unmet checks on one of ``metrics``."""
        return [check for check in self.unmet if check.metric in self.metrics]

    @property
    def _is_judged_worse(self) -> bool:
        """Whether a check against a baseline failed."""
        return any(check.baseline and check.verdict is Verdict.FAIL for check in self.unmet)

    def estimate(
        self, affected: Collection[SampleFacts], repaired_to: Callable[[SampleFacts], float] | None = None
    ) -> Estimate:
        """What the score would be without the affected samples, and with them repaired.

        Args:
            affected: some of the scored samples.
            repaired_to: the score that a repaired sample would have; None: the baseline's or, without one, the mean of
                the other samples if there are enough of them.
        """
        places = {sample.place for sample in affected}
        untouched = [sample for sample in self.scored if sample.place not in places]
        others = _mean(_score(sample) for sample in untouched)
        telling = others if self.has_enough_others(len(untouched)) else None
        if self.score is None or not places:
            return Estimate(score=self.score, without=self.score, repaired=self.score)
        total = fsum(_score(sample) for sample in untouched)
        for sample in affected:
            expected = self._expected(sample, telling) if repaired_to is None else repaired_to(sample)
            if expected is None:
                return Estimate(score=self.score, without=others, repaired=None)
            total += expected
        return Estimate(score=self.score, without=others, repaired=total / len(self.scored))

    def repaired_scores(
        self, affected: Collection[SampleFacts], repaired_to: Callable[[SampleFacts], float] | None = None
    ) -> dict[tuple[str, int], float]:
        """By affected sample, the score that :meth:`estimate` takes it to have once repaired, as far as it is known."""
        places = {sample.place for sample in affected}
        untouched = [sample for sample in self.scored if sample.place not in places]
        others = _mean(map(_score, untouched)) if self.has_enough_others(len(untouched)) else None
        found = {
            sample.place: self._expected(sample, others) if repaired_to is None else repaired_to(sample)
            for sample in affected
        }
        return {place: score for place, score in found.items() if score is not None}

    def has_enough_others(self, count: int) -> bool:
        """Whether `count` unaffected samples are enough to estimate what the affected ones would score."""
        return count >= max(_FEWEST_OTHERS, _LEAST_OTHERS * len(self.scored))

    def _expected(self, sample: SampleFacts, others: float | None) -> float | None:
        twin = None if self.baseline is None else self.baseline.twins.get(sample.place)
        return others if twin is None or twin.score is None else twin.score

    def in_baseline(self, shows: Callable[[SampleFacts], bool]) -> float | None:
        """The share of the baseline's samples for which `shows` is true; None if only its scores are known."""
        if self.baseline is None or not self.baseline.has_facts:
            return None
        known = [twin.facts for _, twin in self.pairs if twin.facts is not None]
        return sum(map(shows, known)) / len(known) if known else None

    def twin_facts(self, sample: SampleFacts) -> SampleFacts | None:
        """The facts of the same document in the baseline."""
        twin = None if self.baseline is None else self.baseline.twins.get(sample.place)
        return None if twin is None else twin.facts


def _score(sample: SampleFacts) -> float:
    return sample.score or 0.0


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return fsum(known) / len(known) if known else None
