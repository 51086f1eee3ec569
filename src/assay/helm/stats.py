"""HELM's statistics: named moments, per instance and aggregated."""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Self, SupportsIndex

import msgspec

from assay.helm.scenario import Instance, PerturbationDescription  # noqa: TC001 - msgspec resolves the annotations
from assay.helm.structs import HelmStruct, Int64, Number, plain_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class MetricContext(NamedTuple):
    """Instances with the same context are averaged together."""

    split: str | None
    sub_split: str | None
    perturbation: PerturbationDescription | None

    @classmethod
    def from_instance(cls, instance: Instance) -> Self:
        """The context that an instance belongs to."""
        return cls(instance.split, instance.sub_split, instance.perturbation)


class MetricName(HelmStruct, frozen=True):
    """What a statistic measures, and for which instances."""

    name: str
    split: str | None = None
    sub_split: str | None = None
    perturbation: PerturbationDescription | None = None

    @property
    def context(self) -> MetricContext:
        """The context of its instances."""
        return MetricContext(self.split, self.sub_split, self.perturbation)


class Stat(HelmStruct, frozen=False):  # type: ignore[misc]  # msgspec allows it
    """Moments of the values seen so far.

    Integers stay integers. Variance and standard deviation are the population's, not the sample's. As in HELM, and
    unlike the other records, a Stat is mutable: `add` and `merge` add values to it.
    """

    name: MetricName
    count: Int64 = 0
    sum: Number = 0
    sum_squared: Number = 0
    min: Number | None = None
    max: Number | None = None
    mean: Number | None = None
    variance: Number | None = None
    stddev: Number | None = None

    @classmethod
    def of(cls, name: MetricName, value: Number | None) -> Stat:
        """The Stat of one value, or an empty one for ``None``."""
        if value is None:
            return cls(name)
        if type(value) is not float:
            value = plain_number(value)
        total, square = 0 + value, value * value
        mean = _mean(total, 1)
        if total == value == mean and type(total) is float and (value or math.copysign(1, value) > 0):
            total = mean = value  # one object instead of three
        variance = _variance(square, 1, mean)
        return cls(name, 1, total, square, value, value, mean, variance, math.sqrt(variance))

    def add(self, value: Number | None) -> Self:
        """Add one value and return this Stat; ``None`` changes nothing."""
        if value is None:
            return self
        moments = Moments.from_stat(self)
        moments.add(value)
        return self._become(moments)

    def merge(self, other: Stat) -> Self:
        """Add the values of another Stat, whatever its name, and return this one."""
        moments = Moments.from_stat(self)
        moments.merge(Moments.from_stat(other))
        return self._become(moments)

    def _become(self, moments: Moments) -> Self:
        new = moments.to_stat(self.name)
        self.count, self.sum, self.sum_squared = new.count, new.sum, new.sum_squared
        self.min, self.max = new.min, new.max
        self.mean, self.variance, self.stddev = new.mean, new.variance, new.stddev
        return self


class Moments:
    """Running sums of values, added in HELM's order so that every bit is equal."""

    __slots__ = ("count", "high", "low", "squares", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: Number = 0
        self.squares: Number = 0
        self.low: Number | None = None
        self.high: Number | None = None

    @classmethod
    def of(cls, value: Number | None) -> Self:
        """The moments of one value, or empty ones for ``None``."""
        moments = cls()
        moments.add(value)
        return moments

    @classmethod
    def from_stat(cls, stat: Stat) -> Self:
        """The moments of a Stat's values."""
        moments = cls()
        moments.count, moments.total, moments.squares = stat.count, stat.sum, stat.sum_squared
        moments.low, moments.high = stat.min, stat.max
        return moments

    def add(self, value: Number | None) -> None:
        """Add one value; booleans are 0 or 1, ``None`` is ignored."""
        if value is None:
            return
        if type(value) is not float:
            value = plain_number(value)
        self.total += value
        self.squares += value * value
        self.low = value if self.low is None else min(self.low, value)
        self.high = value if self.high is None else max(self.high, value)
        self.count += 1

    def merge(self, other: Moments) -> None:
        """Add the values of others."""
        self.total += other.total
        self.squares += other.squares
        if other.low is not None:
            self.low = other.low if self.low is None else min(self.low, other.low)
        if other.high is not None:
            self.high = other.high if self.high is None else max(self.high, other.high)
        self.count += other.count

    @property
    def mean(self) -> float | None:
        """Mean of the values, if there are any."""
        return _mean(self.total, self.count) if self.count else None

    def to_stat(self, name: MetricName) -> Stat:
        """The Stat of these moments."""
        if self.count == 0:
            return Stat(name, 0, self.total, self.squares, self.low, self.high)
        mean = _mean(self.total, self.count)
        variance = _variance(self.squares, self.count, mean)
        return Stat(
            name, self.count, self.total, self.squares, self.low, self.high, mean, variance, math.sqrt(variance)
        )


def _mean(total: Number, count: int) -> float:
    try:
        return total / count
    except OverflowError:  # an integer too large for a float, on which HELM fails
        return math.inf if total > 0 else -math.inf


def _variance(squares: Number, count: int, mean: float) -> Number:
    try:
        variance = squares / count - mean**2
    except OverflowError:
        return math.inf
    return 0 if variance < 0 else variance


class PerInstanceStats(HelmStruct, frozen=True, kw_only=True):
    """One instance's statistics in one trial."""

    instance_id: str
    perturbation: PerturbationDescription | None = None
    train_trial_index: Int64
    stats: list[Stat]


class CopyOnReadStats(list[Stat]):
    """One instance's statistics, which share their Stat objects with other instances until they are accessed.

    Most values repeat, and most statistics are only written, so sharing saves time and memory. A caller that accesses a
    Stat may change it, so the first access replaces all of them by copies.
    """

    __slots__ = ("_are_copied",)

    def __init__(self, stats: Iterable[Stat]) -> None:
        super().__init__(stats)
        self._are_copied = False

    def without_copying(self) -> Iterator[Stat]:
        """Iterate over the shared objects, which must not be changed or kept."""
        return super().__iter__()

    def __iter__(self) -> Iterator[Stat]:
        self._copy_once()
        return super().__iter__()

    def __reversed__(self) -> Iterator[Stat]:
        self._copy_once()
        return super().__reversed__()

    def __getitem__(self, index: Any) -> Any:
        self._copy_once()
        return super().__getitem__(index)

    def __add__(self, other: Any) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Any) -> list[Any]:
        return [*other, *self]

    def pop(self, index: SupportsIndex = -1) -> Stat:
        """Remove and return one."""
        self._copy_once()
        return super().pop(index)

    def copy(self) -> list[Stat]:
        """A plain list of the statistics."""
        return list(self)

    def _copy_once(self) -> None:
        if not self._are_copied:
            self._are_copied = True
            self[:] = [copy(stat) for stat in super().__iter__()]


def copied_on_read(record: PerInstanceStats) -> PerInstanceStats:
    """The record with statistics that are copied when they are first accessed."""
    return msgspec.structs.replace(record, stats=CopyOnReadStats(record.stats))


class MetricResult(msgspec.Struct, frozen=True):
    """The statistics that a metric computes for a run."""

    aggregated_stats: list[Stat]
    per_instance_stats: list[PerInstanceStats]
    unscored: list[str] = msgspec.field(default_factory=list)
    """For each request or instance that could not be scored, a line with the reason."""


def is_finite(stat: Stat) -> bool:
    """Whether a Stat is written: HELM leaves out those whose sum is NaN."""
    return not math.isnan(stat.sum)
