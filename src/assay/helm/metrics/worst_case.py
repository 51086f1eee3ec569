"""The worst value over an instance and its perturbed copies, which says how robust and how fair a model is."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec

from assay.errors import FileFormatError
from assay.helm.scenario import PerturbationDescription
from assay.helm.stats import MetricName, Moments, Stat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROBUSTNESS = PerturbationDescription("robustness", robustness=True, computed_on="worst")
_FAIRNESS = PerturbationDescription("fairness", fairness=True, computed_on="worst")
_OVERALL = (_ROBUSTNESS.name, _FAIRNESS.name)


class WorstCases:
    """Gathers a trial's per-instance statistics and gives those over perturbations.

    HELM takes the smallest value of every statistic, also of those where smaller is better.
    """

    def __init__(self) -> None:
        self._stats: dict[tuple[MetricName, str], list[Stat]] = {}

    def add(self, instance_id: str, stats: Sequence[Stat]) -> None:
        """Keep one instance's statistics."""
        for stat in stats:
            self._stats.setdefault((_unperturbed(stat.name), instance_id), []).append(stat)

    def finish(self) -> Iterable[tuple[MetricName, Moments]]:
        """The worst cases of what was added, which is then forgotten."""
        derived: dict[MetricName, Moments] = {}
        for (name, instance_id), stats in self._stats.items():
            self._derive(name, instance_id, stats, derived)
        self._stats = {}
        return derived.items()

    @staticmethod
    def overall_names(name: MetricName) -> tuple[MetricName, MetricName]:
        """Names of the worst value over all perturbations for robustness, and of that for fairness."""
        return _with(name, _ROBUSTNESS), _with(name, _FAIRNESS)

    def _derive(
        self, name: MetricName, instance_id: str, stats: list[Stat], derived: dict[MetricName, Moments]
    ) -> None:
        original: Stat | None = None
        robustness, fairness = Moments(), Moments()
        perturbed: dict[PerturbationDescription, Stat] = {}
        for stat in stats:
            perturbation = stat.name.perturbation
            if perturbation is None:
                original = stat
                continue
            if perturbation.robustness:
                robustness.merge(Moments.from_stat(stat))
            if perturbation.fairness:
                fairness.merge(Moments.from_stat(stat))
            perturbed[perturbation] = stat
        if len(perturbed) + (original is not None) < len(stats):
            raise FileFormatError(f"{name.name} occurs twice for one perturbation of instance {instance_id}")
        for worst_name, moments in zip(self.overall_names(name), (robustness, fairness), strict=True):
            _add_worst(derived, worst_name, moments, original)
        for perturbation, stat in perturbed.items():
            if original is not None and perturbation.name not in _OVERALL:
                before = _with(name, _computed_on(perturbation, "original"))
                derived.setdefault(before, Moments()).merge(Moments.from_stat(original))
            _add_worst(derived, _with(name, _computed_on(perturbation, "worst")), Moments.from_stat(stat), original)


def _add_worst(derived: dict[MetricName, Moments], name: MetricName, moments: Moments, original: Stat | None) -> None:
    if original is not None:
        moments.merge(Moments.from_stat(original))
    if moments.count:
        derived.setdefault(name, Moments()).add(moments.low)


@cache
def _computed_on(perturbation: PerturbationDescription, which: str) -> PerturbationDescription:
    return msgspec.structs.replace(perturbation, computed_on=which)


@cache
def _unperturbed(name: MetricName) -> MetricName:
    return _with(name, None)


@cache
def _with(name: MetricName, perturbation: PerturbationDescription | None) -> MetricName:
    return msgspec.structs.replace(name, perturbation=perturbation)
