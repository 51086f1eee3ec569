"""HELM's statistics: named moments, per instance and aggregated."""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Self, SupportsIndex

import msgspec

from assay.helm.scenario import Instance, PerturbationDescription  # noqa: TC001 - msgspec resolves the annotations
from assay.helm.structs import HelmStruct, Number, Whole, plain_number

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
    """What a statistic measures, and over which instances."""

    name: str
    split: str | None = None
    sub_split: str | None = None
    perturbation: PerturbationDescription | None = None

    @property
    def context(self) -> MetricContext:
        """The instances it is about."""
        return MetricContext(self.split, self.sub_split, self.perturbation)


class Stat(HelmStruct, frozen=False):  # type: ignore[misc]  # msgspec allows it
    """Moments of the values seen so far.

    Integers stay integers. Variance and standard deviation are the population's, not the sample's. As in HELM, and
    unlike any other record, a Stat changes: `add` and `merge` count values into it.
    """

    name: MetricName
    count: Whole = 0
    sum: Number = 0
    sum_squared: Number = 0
    min: Number | None = None
    max: Number | None = None
    mean: Number | None = None
    variance: Number | None = None
    stddev: Number | None = None

    @classmethod
    def of(cls, name: MetricName, value: Number | None) -> Stat:
        """The Stat of one value, or of none."""
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
        """Count one more value, and give this Stat; ``None`` changes nothing."""
        if value is None:
            return self
        moments = Moments.from_stat(self)
        moments.add(value)
        return self._become(moments)

    def merge(self, other: Stat) -> Self:
        """Count another's values, whatever its name, and give this Stat."""
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
    """A running sum of values, in HELM's order of operations so that every bit comes out the same."""

    __slots__ = ("count", "high", "low", "squares", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: Number = 0
        self.squares: Number = 0
        self.low: Number | None = None
        self.high: Number | None = None

    @classmethod
    def of(cls, value: Number | None) -> Self:
        """The moments of one value, or of none."""
        moments = cls()
        moments.add(value)
        return moments

    @classmethod
    def from_stat(cls, stat: Stat) -> Self:
        """The moments that a Stat holds."""
        moments = cls()
        moments.count, moments.total, moments.squares = stat.count, stat.sum, stat.sum_squared
        moments.low, moments.high = stat.min, stat.max
        return moments

    def add(self, value: Number | None) -> None:
        """Count one value; a truth value counts 0 or 1, ``None`` does not count."""
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
        """Count another's values."""
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
    except OverflowError:  # a whole number beyond floating point, on which HELM fails
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
    train_trial_index: Whole
    stats: list[Stat]


class LentStats(list[Stat]):
    """One instance's statistics, of which others may have the same objects until somebody takes them out of here.

    Most values repeat, and most statistics are only written. Who takes one may add to it, so from then on they are the
    instance's own.
    """

    __slots__ = ("_are_own",)

    def __init__(self, stats: Iterable[Stat]) -> None:
        super().__init__(stats)
        self._are_own = False

    def as_lent(self) -> Iterator[Stat]:
        """The statistics, to be looked at and not to be changed or kept."""
        return super().__iter__()

    def __iter__(self) -> Iterator[Stat]:
        self._own()
        return super().__iter__()

    def __reversed__(self) -> Iterator[Stat]:
        self._own()
        return super().__reversed__()

    def __getitem__(self, place: Any) -> Any:
        self._own()
        return super().__getitem__(place)

    def __add__(self, other: Any) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Any) -> list[Any]:
        return [*other, *self]

    def pop(self, place: SupportsIndex = -1) -> Stat:
        """Take one out."""
        self._own()
        return super().pop(place)

    def copy(self) -> list[Stat]:
        """A list of the same objects."""
        return list(self)

    def _own(self) -> None:
        if not self._are_own:
            self._are_own = True
            self[:] = [copy(stat) for stat in super().__iter__()]


def lent(record: PerInstanceStats) -> PerInstanceStats:
    """The record for somebody to keep, whose statistics others have too."""
    return msgspec.structs.replace(record, stats=LentStats(record.stats))


class MetricResult(msgspec.Struct, frozen=True):
    """What a metric says of a run."""

    aggregated_stats: list[Stat]
    per_instance_stats: list[PerInstanceStats]
    unscored: list[str] = msgspec.field(default_factory=list)
    """One line for each request or instance that could not be scored: which, and why."""


def is_finite(stat: Stat) -> bool:
    """Whether a Stat may be written: HELM leaves out those whose sum is not a number."""
    return not math.isnan(stat.sum)
