"""Is a candidate within numeric noise? Its error beside that of another healthy build, against the same reference.

After the three-way comparison of vLLM Neuron's logit validation, which sets a device's error in the logits against that
of bfloat16, both from float32: the ratio of the errors' standard deviations, how far their distributions overlap, and
the ratios of their largest and their mean square. Here the errors are those of the given tokens' log-probabilities.
Whether the candidate is within noise is decided by its divergence, prompt by prompt: a sign test (Conover, Practical
Nonparametric Statistics, 3rd ed., 3.4), which needs no distribution of sizes that vary by orders of magnitude.
"""

from __future__ import annotations

from statistics import fmean, pstdev
from typing import TYPE_CHECKING

import msgspec

from assay.errors import NothingMeasuredError
from assay.stats.divergence_bounds import bhattacharyya_of_normals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.identity.divergence.summary import TextDifference

WITHIN = 2.0
"""How many times the noise's divergence counts as noise."""
FAR = 6.0
"""How many times the noise's largest divergence of a prompt keeps a candidate from being the same."""
_ROUNDED = 1e-4
"""Nats that rounding to four decimals makes, in a mean divergence."""


class ThreeWay(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate's error beside the noise's."""

    sigma_ratio: float | None
    """Of the standard deviations of the errors in log-probabilities; 1 if they are the same, None without noise."""
    bhattacharyya: float
    """The coefficient of two normal distributions with the errors' means and deviations; 1 if they are the same."""
    largest_ratio: float | None
    """Of the largest errors (L∞)."""
    square_ratio: float | None
    """Of the roots of the mean squares (L2)."""
    noise: float
    """The noise's mean divergence from the reference, in nats."""
    texts: int
    """Prompts that both read."""
    above: int
    """Prompts in which the candidate's mean divergence is more than ``WITHIN`` times the noise's."""
    is_far_in_one: bool
    """Whether some prompt's is more than ``FAR`` times the noise's largest."""


def three_way(candidate: Sequence[TextDifference], noise: Sequence[TextDifference]) -> ThreeWay:
    """Compare the errors on the prompts and positions of both.

    Args:
        candidate: its differences from the reference.
        noise: the healthy build's.

    Raises:
        NothingMeasuredError: they have no prompt in common.
    """
    others = {text.name: {each.index: each for each in text.positions} for text in noise}
    errors: list[float] = []
    noises: list[float] = []
    sizes: list[tuple[float, float]] = []
    for text in candidate:
        both = [(each, other) for each in text.positions if (other := others.get(text.name, {}).get(each.index))]
        for one, other in both:
            if one.delta is not None and other.delta is not None:
                errors.append(one.delta)
                noises.append(other.delta)
        if both:
            sizes.append((fmean(one.divergence for one, _ in both), fmean(other.divergence for _, other in both)))
    if not sizes:
        raise NothingMeasuredError("the noise reference and the candidate read no prompt in common")
    largest = max(_ROUNDED, *(size for _, size in sizes))
    deviations = (pstdev(errors), pstdev(noises)) if errors else (0.0, 0.0)
    means = (fmean(errors), fmean(noises)) if errors else (0.0, 0.0)
    return ThreeWay(
        sigma_ratio=_ratio(*deviations),
        bhattacharyya=bhattacharyya_of_normals(means[0], deviations[0], means[1], deviations[1]),
        largest_ratio=_ratio(max(map(abs, errors), default=0.0), max(map(abs, noises), default=0.0)),
        square_ratio=_ratio(_root_mean_square(errors), _root_mean_square(noises)),
        noise=fmean(size for _, size in sizes),
        texts=len(sizes),
        above=sum(one > WITHIN * max(size, _ROUNDED) for one, size in sizes),
        is_far_in_one=any(one > FAR * largest for one, _ in sizes),
    )


def _ratio(one: float, other: float) -> float | None:
    return one / other if other > 0 else None


def _root_mean_square(values: Sequence[float]) -> float:
    return fmean(each * each for each in values) ** 0.5 if values else 0.0
