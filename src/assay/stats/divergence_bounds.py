"""How far two distributions are apart of which little is known: only the likeliest outcomes, or mean and deviation."""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def divergence_at_most(
    reference: Mapping[str, float], candidate: Mapping[str, float], most_move: float | None = None
) -> float:
    """An upper bound of the Kullback-Leibler divergence under an assumption about what is not listed.

    Without one there is none: an outcome that the candidate does not list may have any small probability. The
    assumption: no outcome that one of the lists lacks loses more than `most_move` in log-probability. What the
    reference does not list then adds at most `most_move` times its probability; so does each outcome that only the
    reference lists, and one that is known to have lost more, because the candidate's least listed probability is below
    it by more, that loss and `most_move`.

    Args:
        reference: by outcome, its log-probability; the likeliest ones.
        candidate: likewise.
        most_move: nats, at least 0; None: as much as an outcome loses that both list.

    Returns:
        Nats, at least 0; infinite if no outcome is in both lists and `most_move` is not given.
    """
    shared = reference.keys() & candidate.keys()
    if most_move is None:
        if not shared:
            return float("inf")
        most_move = max(0.0, *(reference[each] - candidate[each] for each in shared))
    least = min(candidate.values(), default=0.0)
    listed = sum(exp(reference[each]) * (reference[each] - candidate[each]) for each in shared)
    lost = sum(
        exp(value) * (max(0.0, value - least) + most_move) for each, value in reference.items() if each not in shared
    )
    rest = max(0.0, 1 - sum(map(exp, reference.values()))) * most_move
    return max(0.0, listed + lost + rest)


def bhattacharyya_of_normals(mean: float, deviation: float, other_mean: float, other_deviation: float) -> float:
    """The Bhattacharyya coefficient of two normal distributions: 1 if they are the same, near 0 if they hardly overlap.

    exp(−(μ−μ')²/(4(σ²+σ'²))) · √(2σσ'/(σ²+σ'²)). Kailath (1967), IEEE Trans. Communication Technology 15:52.

    Args:
        mean: of the one.
        deviation: its standard deviation, at least 0.
        other_mean: of the other.
        other_deviation: likewise.
    """
    together = deviation**2 + other_deviation**2
    if together == 0:
        return float(mean == other_mean)
    overlap = exp(-((mean - other_mean) ** 2) / (4 * together))
    ratio = 2 * deviation * other_deviation / together
    return overlap * (0.0 if ratio == 0 else exp(0.5 * log(ratio)))
