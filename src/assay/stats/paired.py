"""Two runs on the same documents: what changed, and whether chance explains it.

Pairing removes the difficulty of the documents from the comparison, which is most of the variance.

Sources: McNemar (1947); Fagerland, Lydersen and Laake (2013), BMC Med. Res. Methodol. 13:91 (exact and mid-p);
Newcombe (1998), Statistics in Medicine 17:2635, method 10; Miller (2024), arXiv 2411.00640, section 4; Ernst (2004),
Statistical Science 19:676 (permutation tests).
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from assay.errors import SpecificationError
from assay.stats.intervals import (
    Interval,
    clustered_mean_interval,
    clustered_standard_error,
    mean_interval,
    standard_error,
    wilson,
)
from assay.stats.validate import count, finite_values

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Alternative = Literal["two-sided", "worse", "better"]
"""What to show about the candidate: that it differs from the baseline, is worse, or is better."""


class Flips(msgspec.Struct, frozen=True):
    """How many documents each of two runs answered right."""

    both_right: int
    lost: int
    """Right in the baseline, wrong in the candidate."""
    gained: int
    """Wrong in the baseline, right in the candidate."""
    both_wrong: int

    @property
    def n(self) -> int:
        """Documents."""
        return self.both_right + self.lost + self.gained + self.both_wrong


class PairedDifference(msgspec.Struct, frozen=True):
    """Candidate minus baseline, document by document."""

    difference: float
    standard_error: float
    unpaired_standard_error: float
    """What the standard error would be if the two runs had been asked different documents."""
    correlation: float
    """Between the two runs' scores, over documents; 0 where one of them never varies."""
    interval: Interval


def count_flips(baseline: ArrayLike, candidate: ArrayLike) -> Flips:
    """Count agreements and flips of two runs of 0/1 scores.

    Raises:
        NothingMeasuredError: There are no scores.
        SpecificationError: A score is neither 0 nor 1, or the runs have different lengths.
    """
    before, after = _pairs(baseline, candidate)
    if not np.isin(np.concatenate([before, after]), (0.0, 1.0)).all():
        raise SpecificationError("flips are counted of scores that are 0 or 1; for graded scores compare the means")
    return Flips(
        both_right=int((before * after).sum()),
        lost=int((before * (1 - after)).sum()),
        gained=int(((1 - before) * after).sum()),
        both_wrong=int(((1 - before) * (1 - after)).sum()),
    )


def mcnemar(lost: int, gained: int, alternative: Alternative = "two-sided", *, mid_p: bool = False) -> float:
    """McNemar's exact test: if both runs are equally good, each flip goes either way with probability ½.

    Args:
        lost: Documents that only the baseline answered right.
        gained: Documents that only the candidate answered right.
        alternative: What to show.
        mid_p: Count the observed table half (Fagerland et al. 2013): less conservative, error rate no longer
            guaranteed but rarely exceeded.

    Returns:
        The p-value; 1 where nothing flipped.

    Raises:
        SpecificationError: A count is negative.
    """
    flips = count("lost", lost) + count("gained", gained)
    extreme = {"worse": gained, "better": lost, "two-sided": min(lost, gained)}[alternative]
    # Whole-number arithmetic up to the one division: exact for any number of flips.
    term, tail = 1, 1
    for k in range(1, extreme + 1):
        term = term * (flips - k + 1) // k
        tail += term
    possible = 1 << flips
    if alternative != "two-sided":
        return (2 * tail - term) / (2 * possible) if mid_p else tail / possible
    if lost == gained:
        return 1 - term / (2 * possible) if mid_p and flips else 1.0
    return (2 * tail - term) / possible if mid_p else 2 * tail / possible


def newcombe_interval(flips: Flips, confidence: float = 0.95) -> Interval:
    """Interval for the difference of two paired shares, candidate minus baseline.

    Newcombe's method 10: Wilson's intervals of the two shares, squared and added with their correlation. Good coverage
    also for few flips, where difference ± z·stderr is far too narrow (Newcombe 1998).

    Args:
        flips: The table of agreements and flips.
        confidence: Two-sided, for example 0.95.

    Raises:
        NothingMeasuredError: There are no documents.
        SpecificationError: A count is negative or ``confidence`` is out of range.
    """
    a, b, c, d = flips.both_right, flips.gained, flips.lost, flips.both_wrong
    after, before = wilson(a + b, flips.n, confidence), wilson(a + c, flips.n, confidence)
    p_after, p_before = (a + b) / flips.n, (a + c) / flips.n
    product = (a + b) * (c + d) * (a + c) * (b + d)
    determinant = float(a * d - b * c)
    if determinant > 0:
        determinant = max(determinant - flips.n / 2, 0.0)
    phi = determinant / sqrt(product) if product else 0.0

    def distance(first: float, second: float) -> float:
        return sqrt(max(first * first - 2 * phi * first * second + second * second, 0.0))

    difference = (b - c) / flips.n
    return Interval(
        low=max(difference - distance(p_after - after.low, before.high - p_before), -1.0),
        high=min(difference + distance(after.high - p_after, p_before - before.low), 1.0),
        confidence=confidence,
        method="newcombe",
    )


def paired_difference(
    baseline: ArrayLike, candidate: ArrayLike, confidence: float = 0.95, clusters: ArrayLike | None = None
) -> PairedDifference:
    """Difference of two mean scores on the same documents, with Miller's paired standard error.

    The standard error of the mean of d_i = candidate_i − baseline_i (Miller 2024, section 4.2), which is
    √(SE_A² + SE_B² − 2·SE_A·SE_B·correlation). For 0/1 scores with few flips prefer :func:`newcombe_interval`.

    Args:
        baseline: Scores of the baseline.
        candidate: Scores of the candidate on the same documents in the same order.
        confidence: Two-sided, for example 0.95.
        clusters: For each document its cluster, where documents depend on each other.

    Raises:
        NothingMeasuredError: There are no scores.
        SpecificationError: A score is not a number, lengths differ, or ``confidence`` is out of range.
    """
    before, after = _pairs(baseline, candidate)
    differences = after - before
    constant = before.std() == 0 or after.std() == 0
    if clusters is None:
        error, interval = standard_error(differences), mean_interval(differences, confidence)
    else:
        error = clustered_standard_error(differences, clusters)
        interval = clustered_mean_interval(differences, clusters, confidence)
    return PairedDifference(
        difference=float(differences.mean()),
        standard_error=error,
        unpaired_standard_error=sqrt(standard_error(before) ** 2 + standard_error(after) ** 2),
        correlation=0.0 if constant else float(np.corrcoef(before, after)[0, 1]),
        interval=interval,
    )


def sign_flip_test(
    differences: ArrayLike, alternative: Alternative = "two-sided", *, draws: int = 9999, seed: int = 0
) -> float:
    """Permutation test of paired differences: if the runs are alike, each difference may as well have the other sign.

    For repeated generations, where each document's difference is the candidate's mean over its repetitions minus the
    baseline's, and for graded scores: it needs no normal distribution. All 2^m sign patterns of the m differences that
    are not 0 are tried where they are at most ``draws``; else as many random ones, the observed one counted among them
    so that the p-value is valid (Ernst 2004).

    Args:
        differences: Candidate minus baseline, one a document.
        alternative: What to show.
        draws: Random sign patterns.
        seed: Of the random numbers.

    Returns:
        The p-value; 1 where nothing differs.

    Raises:
        NothingMeasuredError: There are no differences.
        SpecificationError: One is not a number.
    """
    array = finite_values(differences)
    array = array[array != 0]
    if alternative == "worse":
        array = -array
    observed = abs(array.sum()) if alternative == "two-sided" else array.sum()
    # Sums of the same numbers in other signs differ by rounding; such ties must count as ties.
    bar = observed - 1e-9 * np.abs(array).sum()
    if 2**array.size <= draws:
        patterns = 1.0 - 2.0 * ((np.arange(2**array.size)[:, None] >> np.arange(array.size)) & 1)
        return float(_reaches(patterns @ array, bar, alternative).mean())
    random = np.random.default_rng(seed)
    hits = 0
    for start in range(0, draws, 1000):
        signs = 1.0 - 2.0 * random.integers(2, size=(min(1000, draws - start), array.size))
        hits += int(np.count_nonzero(_reaches(signs @ array, bar, alternative)))
    return (1 + hits) / (1 + draws)


def _reaches(sums: NDArray[np.float64], bar: float, alternative: Alternative) -> NDArray[np.bool_]:
    return (np.abs(sums) if alternative == "two-sided" else sums) >= bar


def _pairs(baseline: ArrayLike, candidate: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    before, after = finite_values(baseline), finite_values(candidate)
    if before.size != after.size:
        raise SpecificationError(f"{before.size} baseline scores cannot be paired with {after.size} of the candidate")
    return before, after
