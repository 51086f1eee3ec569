"""Is a candidate within numeric noise? Its error beside that of another healthy build, against the same reference.

After the three-way comparison of vLLM Neuron's logit validation, which sets a device's error in the logits against that
of bfloat16, both from float32: the ratio of the errors' standard deviations, how far their distributions overlap, and
the ratios of their largest and their mean square. Here the errors are those of the given tokens' log-probabilities.
Whether the candidate is within noise is decided by its divergence, prompt by prompt.
"""

from __future__ import annotations

from statistics import fmean, pstdev
from typing import TYPE_CHECKING

import msgspec

from assay.stats.divergence_bounds import bhattacharyya_of_normals
from assay.stats.intervals import Interval, mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.identity.divergence.summary import TextDifference

WITHIN = 2.0
"""How many times the noise's divergence counts as noise."""
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
    excess: Interval
    """Mean over the prompts of the candidate's divergence less ``WITHIN`` times the noise's."""


def three_way(candidate: Sequence[TextDifference], noise: Sequence[TextDifference], confidence: float) -> ThreeWay:
    """Compare the errors on the prompts and positions of both.

    Args:
        candidate: its differences from the reference.
        noise: the healthy build's.
        confidence: of the interval, two-sided.
    """
    others = {text.name: {each.index: each for each in text.positions} for text in noise}
    errors, noises, excess, divergences = [], [], [], []
    for text in candidate:
        both = [(each, other) for each in text.positions if (other := others.get(text.name, {}).get(each.index))]
        for one, other in both:
            if one.delta is not None and other.delta is not None:
                errors.append(one.delta)
                noises.append(other.delta)
        if both:
            least = fmean(other.divergence for _, other in both)
            divergences.append(least)
            excess.append(fmean(one.divergence for one, _ in both) - WITHIN * max(least, _ROUNDED))
    deviations = (pstdev(errors), pstdev(noises)) if errors else (0.0, 0.0)
    means = (fmean(errors), fmean(noises)) if errors else (0.0, 0.0)
    return ThreeWay(
        sigma_ratio=_ratio(*deviations),
        bhattacharyya=bhattacharyya_of_normals(means[0], deviations[0], means[1], deviations[1]),
        largest_ratio=_ratio(max(map(abs, errors), default=0.0), max(map(abs, noises), default=0.0)),
        square_ratio=_ratio(_root_mean_square(errors), _root_mean_square(noises)),
        noise=fmean(divergences),
        excess=mean_interval(excess, confidence),
    )


def _ratio(one: float, other: float) -> float | None:
    return one / other if other > 0 else None


def _root_mean_square(values: Sequence[float]) -> float:
    return fmean(each * each for each in values) ** 0.5 if values else 0.0
