"""Before the run: how many documents a fixed-size test needs, and the smallest change that a number of documents shows.

Normal approximations, as usual for planning. Error rates are one-sided unless ``sides`` is 2. Where the documents are
a part of a benchmark of N and its full score is what counts, give ``population``: then fewer are needed.

Sources: Miller (2024), arXiv 2411.00640, section 5; Cochran (1977), "Sampling Techniques", section 4.6 (finite
populations); Connett, Smith and McHugh (1987), Statistics in Medicine 6:53 (paired shares).
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, Literal

from assay.errors import SpecificationError
from assay.stats.intervals import normal_quantile
from assay.stats.validate import count, probability

if TYPE_CHECKING:
    from collections.abc import Callable


def required_n(
    effect: float,
    sd: float,
    *,
    sd_null: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    sides: Literal[1, 2] = 1,
    population: int | None = None,
) -> int:
    """Documents needed to see a difference of ``effect`` in a mean: ((z_α·sd₀ + z_β·sd)/effect)².

    Args:
        effect: The difference to be seen; its sign does not matter.
        sd: Standard deviation of one document's score (or paired difference) if the effect is there.
        sd_null: The same if there is no effect; ``sd`` if not given.
        alpha: Error rate.
        power: Probability of seeing the effect if it is there.
        sides: 2 if a difference in either direction counts.
        population: N, if the documents are drawn from so many without replacement.

    Returns:
        The number, rounded up; at most ``population``.

    Raises:
        SpecificationError: An argument is out of range; an effect of 0 cannot be seen by any number.
    """
    if effect == 0:
        raise SpecificationError(
            "a difference of 0 cannot be seen with any number of documents; name the least that matters"
        )
    z_alpha, z_power = _quantiles(alpha, power, sides)
    unlimited = ((z_alpha * (sd if sd_null is None else sd_null) + z_power * sd) / effect) ** 2
    if population is None:
        return max(1, ceil(unlimited))
    return min(population, max(1, ceil(unlimited / (1 + (unlimited - 1) / population))))


def required_n_for_threshold(
    threshold: float, score: float, *, alpha: float = 0.05, power: float = 0.8, population: int | None = None
) -> int:
    """Right-or-wrong documents needed to tell a model of true score ``score`` from one at ``threshold``.

    Arguments and errors as in :func:`required_n`.
    """
    return required_n(
        score - threshold, _sd(score), sd_null=_sd(threshold), alpha=alpha, power=power, population=population
    )


def required_n_for_margin(
    margin: float,
    flip_rate: float,
    *,
    difference: float = 0.0,
    alpha: float = 0.05,
    power: float = 0.8,
    population: int | None = None,
) -> int:
    """Paired right-or-wrong documents needed to tell a true ``difference`` from a loss of just ``margin``.

    A difference in {−1, 0, 1} that is not 0 with probability ``flip_rate`` and has mean μ has variance flip_rate − μ²
    (Connett et al. 1987).

    Args:
        margin: The loss that would no longer pass, as a positive number.
        flip_rate: Share of documents whose answer changes between right and wrong, either way.
        difference: The true mean difference, candidate minus baseline; 0 for a healthy candidate.
        alpha: Error rate.
        power: Probability of a right verdict.
        population: N, if the documents are drawn from so many without replacement.

    Raises:
        SpecificationError: An argument is out of range.
    """
    return required_n(
        difference + margin,
        _flip_sd(difference, flip_rate),
        sd_null=_flip_sd(margin, max(flip_rate, margin)),
        alpha=alpha,
        power=power,
        population=population,
    )


def detectable_drop(
    n: int, threshold: float, *, alpha: float = 0.05, power: float = 0.8, population: int | None = None
) -> float:
    """How far below ``threshold`` a true score must lie for ``n`` right-or-wrong documents to show it.

    The minimum detectable effect of a threshold check; ``threshold`` itself if even a score of 0 would not do.

    Raises:
        SpecificationError: An argument is out of range.
    """
    _sd(threshold)
    return _smallest(
        threshold,
        n,
        lambda drop: required_n_for_threshold(threshold, threshold - drop, alpha=alpha, power=power),
        population,
    )


def detectable_loss(
    n: int,
    flip_rate: float,
    *,
    margin: float = 0.0,
    alpha: float = 0.05,
    power: float = 0.8,
    population: int | None = None,
) -> float:
    """The smallest true loss against a baseline that ``n`` paired right-or-wrong documents show to exceed ``margin``.

    The minimum detectable effect of a baseline check; 1 if none would do.

    Args:
        n: Documents.
        flip_rate: Share of documents that flip even where nothing is wrong; a greater loss flips at least as many.
        margin: The loss that is allowed.
        alpha: Error rate.
        power: Probability of showing it.
        population: N, if the documents are drawn from so many without replacement.

    Raises:
        SpecificationError: An argument is out of range.
    """

    def needed(excess: float) -> int:
        loss = min(margin + excess, 1.0)
        return required_n_for_margin(margin, max(flip_rate, loss), difference=-loss, alpha=alpha, power=power)

    probability("flip rate", max(flip_rate, 1e-9))
    return margin + _smallest(1.0 - margin, n, needed, population)


def _smallest(largest: float, n: int, needed: Callable[[float], int], population: int | None) -> float:
    """The smallest effect for which ``needed`` documents are at most n, by bisection."""
    count("n", n, least=1)
    if population is not None and n >= population:
        return 0.0
    # What n of N tell about all N, so many would tell about an unlimited supply.
    worth = n if population is None else n * (population - 1) / (population - n)
    low, high = 0.0, largest
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if needed(middle) <= worth else (middle, high)
    return high


def _quantiles(alpha: float, power: float, sides: int) -> tuple[float, float]:
    return -normal_quantile(probability("alpha", alpha) / sides), normal_quantile(probability("power", power))


def _sd(score: float) -> float:
    if not 0.0 <= score <= 1.0:
        raise SpecificationError(f"score {score} does not lie between 0 and 1")
    return sqrt(score * (1 - score))


def _flip_sd(difference: float, flip_rate: float) -> float:
    if not abs(difference) <= flip_rate <= 1.0:
        raise SpecificationError(
            f"a flip rate of {flip_rate} is impossible with a difference of {difference:g}: that share flips at least"
        )
    return sqrt(flip_rate - difference**2)
