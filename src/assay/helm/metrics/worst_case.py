"""The worst value over an instance and its perturbed copies, which measures robustness and fairness."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from assay.errors import FileFormatError
from assay.helm.scenario import PerturbationDescription
from assay.helm.stats import MetricName, Moments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.helm.stats import Stat
    from assay.helm.structs import Number

_ROBUSTNESS = PerturbationDescription("robustness", robustness=True)
_FAIRNESS = PerturbationDescription("fairness", fairness=True)
_OVERALL = (_ROBUSTNESS.name, _FAIRNESS.name)

_StatKey = tuple[str, str | None, str | None]
"""A metric's name, split and sub-split."""
_Derived = dict[tuple[_StatKey, PerturbationDescription, str], Moments]
"""By key, perturbation, and ``worst`` or ``original`` (the values before the perturbation)."""


class WorstCases:
    """Collects a trial's per-instance statistics and computes their worst cases over perturbations.

    As in HELM, the worst is the smallest value, also of statistics where smaller is better.
    """

    def __init__(self) -> None:
        self._stats: dict[tuple[_StatKey, str], list[Stat]] = {}

    def add(self, instance_id: str, stats: Sequence[Stat]) -> None:
        """Add one instance's statistics."""
        for stat in stats:
            key = (stat.name.name, stat.name.split, stat.name.sub_split)
            self._stats.setdefault((key, instance_id), []).append(stat)

    def finish(self) -> Iterable[tuple[MetricName, Moments]]:
        """The worst cases of the added statistics, which are then cleared."""
        derived: _Derived = {}
        for (key, instance_id), stats in self._stats.items():
            if len({stat.name.perturbation for stat in stats}) < len(stats):
                raise FileFormatError(f"{key[0]} occurs twice for one perturbation of instance {instance_id}")
            _derive(key, stats, derived)
        self._stats = {}
        for (key, perturbation, computed_on), moments in derived.items():
            yield MetricName(*key, msgspec.structs.replace(perturbation, computed_on=computed_on)), moments


def overall_worst_names(name: MetricName) -> tuple[MetricName, MetricName]:
    """The names of the worst value over all robustness perturbations, and over all fairness perturbations."""
    robustness, fairness = (
        msgspec.structs.replace(name, perturbation=msgspec.structs.replace(perturbation, computed_on="worst"))
        for perturbation in (_ROBUSTNESS, _FAIRNESS)
    )
    return robustness, fairness


def _derive(key: _StatKey, stats: list[Stat], derived: _Derived) -> None:
    perturbed = [(stat.name.perturbation, stat) for stat in stats if stat.name.perturbation is not None]
    originals = [stat for stat in stats if stat.name.perturbation is None]
    robust = [stat for perturbation, stat in perturbed if perturbation.robustness]
    fair = [stat for perturbation, stat in perturbed if perturbation.fairness]
    _add_worst(derived, (key, _ROBUSTNESS, "worst"), [*robust, *originals])
    _add_worst(derived, (key, _FAIRNESS, "worst"), [*fair, *originals])
    for perturbation, stat in perturbed:
        if originals and perturbation.name not in _OVERALL:
            before = derived.setdefault((key, perturbation, "original"), Moments())
            before.merge(Moments.from_stat(originals[0]))
        _add_worst(derived, (key, perturbation, "worst"), [stat, *originals])


def _add_worst(derived: _Derived, key: tuple[_StatKey, PerturbationDescription, str], stats: list[Stat]) -> None:
    lows: list[Number] = [stat.min for stat in stats if stat.min is not None]
    if lows:
        derived.setdefault(key, Moments()).add(min(lows))
