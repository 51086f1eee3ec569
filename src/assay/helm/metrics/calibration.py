"""Does the model's confidence say how often it is right?

Expected calibration error and Platt scaling as in Kumar, Liang & Ma 2019, https://arxiv.org/abs/1909.10155. HELM takes
both from the package uncertainty-calibration, which takes the logistic regression from scikit-learn. This module
computes the same values without these packages, whose imports take a second and 150 MB.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from assay.helm.metrics.table import ContextTotals, Named

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_MASS_BINS = 10
_SMALLEST = 1e-12
"""Confidences are clipped to this distance from 0 and 1 before their log odds are computed."""
_BLOCK = 1 << 16
"""Samples at a time, which bounds the memory for intermediate values."""
_PENALTY = 1e-10
"""Weight of the squared slope relative to the sum of all losses."""


def calibration(totals: ContextTotals) -> Named:
    """Calibration of a context's instances; nothing if the model returned no log probabilities."""
    return calibration_of(totals) if totals.has_logprobs else []


def calibration_with_count(totals: ContextTotals) -> Named:
    """As in HELM 0.2: calibration in any case, and the number of instances."""
    return [*calibration_of(totals), ("num_instances", totals.num_instances)]


def calibration_of(totals: ContextTotals) -> Named:
    """Calibration of the instances that have both a confidence and an exact match."""
    import numpy as np

    if not totals.confidences:
        return []
    confidences = np.array(totals.confidences, dtype=np.float64)
    correct = np.array(totals.correct, dtype=np.int64)
    area, accuracy_at_10 = _selective_accuracy(confidences, correct)
    statistics: Named = [
        *_errors("ece", confidences, correct),
        ("selective_cov_acc_area", area),
        ("selective_acc@10", accuracy_at_10),
    ]
    if correct.sum() in (0, len(correct)):  # nothing to fit: rescaled confidences are perfect
        return [*statistics, ("platt_ece_10_bin", 0.0), ("platt_ece_1_bin", 0.0)]
    log_odds = _log_odds(confidences)
    if not np.isfinite(log_odds).all():  # HELM fails on a log probability that is not a number
        return statistics
    slope, intercept = platt_scaling(log_odds, correct)
    with np.errstate(over="ignore"):  # the inverse of infinity is 0
        rescaled = 1 / (1 + np.exp(-(log_odds * slope + intercept)))
    return [
        *statistics,
        ("platt_coef", slope),
        ("platt_intercept", intercept),
        *_errors("platt_ece", rescaled, correct),
    ]


def platt_scaling(log_odds: Floats, correct: Integers) -> tuple[float, float]:
    """Slope and intercept of the logistic regression of being right on the log odds of the confidence.

    The last digits depend on where the iteration stops. As in scikit-learn, L-BFGS-B starts at zero and minimizes the
    mean loss until no component of the gradient exceeds 1e-4.
    """
    import numpy as np
    from scipy.optimize import minimize

    samples = log_odds.reshape(-1, 1)
    labels = correct.astype(np.float64)
    count = len(labels)
    penalty = 1.0 / (1 / _PENALTY * count)

    def loss_and_gradient(parameters: Floats) -> tuple[float, Floats]:
        slopes, intercept = parameters[:-1], parameters[-1]
        losses, gradients = _logistic_loss(samples @ slopes + intercept, labels)
        loss = float(losses.sum() / count) + float(0.5 * penalty * (slopes @ slopes))
        gradients /= count
        return loss, np.array([*(samples.T @ gradients + penalty * slopes), gradients.sum()])

    settings = {"maxiter": 100, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    found: Any = minimize(loss_and_gradient, np.zeros(2), method="L-BFGS-B", jac=True, options=settings)
    return float(found.x[0]), float(found.x[1])


def _logistic_loss(raw: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """Each sample's loss, and its derivative with respect to the raw prediction."""
    import numpy as np

    losses, gradients = np.empty_like(raw), np.empty_like(raw)
    for begin in range(0, len(raw), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        losses[part], gradients[part] = _block_of_logistic_loss(raw[part], labels[part])
    return losses, gradients


def _block_of_logistic_loss(raw: Floats, labels: Floats) -> tuple[Floats, Floats]:
    """The same for a block, in a form without overflow or cancellation."""
    import numpy as np

    is_low = raw <= -2
    # The C library's functions, since NumPy's differ in the last bit.
    power = _each(math.exp, np.where(is_low, raw, -raw))
    is_linear = (raw <= -37) | (raw > 18)
    log_sum = np.where(is_linear, power, _each(math.log1p, power))
    losses = np.where(is_low, log_sum - labels * raw, log_sum + (1 - labels) * raw)
    low = ((1 - labels) * power - labels) / (1 + power)
    high = ((1 - labels) - labels * power) / (1 + power)
    gradients = np.where(raw <= -37, power - labels, np.where(is_low, low, high))
    return losses, gradients


def _each(function: Callable[[float], float], values: Floats) -> Floats:
    import numpy as np

    return np.fromiter(map(function, values.tolist()), np.float64, len(values))


def _log_odds(confidences: Floats) -> Floats:
    import numpy as np

    clipped = np.clip(confidences, _SMALLEST, 1 - _SMALLEST)
    odds: Floats = np.log(clipped / (1 - clipped))
    return odds


def _selective_accuracy(confidences: Floats, correct: Integers) -> tuple[float, float]:
    """Accuracy of the most confident answers: its mean over all coverages, and its value at a coverage of a tenth."""
    import numpy as np

    surest_first = correct[np.argsort(-confidences)]
    accuracies = np.cumsum(surest_first) / np.arange(1, len(correct) + 1)
    return float(np.mean(accuracies)), float(accuracies[int(0.1 * len(correct))])


def _errors(prefix: str, confidences: Floats, correct: Integers) -> Named:
    by_mass = _calibration_error(confidences, correct, _equal_mass_bins(confidences))
    return [(f"{prefix}_10_bin", by_mass), (f"{prefix}_1_bin", _calibration_error(confidences, correct, [1.0]))]


def _equal_mass_bins(confidences: Floats) -> list[float]:
    """Upper bounds of bins with equally many confidences."""
    import numpy as np

    ordered = np.sort(confidences)
    num_bins = min(_MASS_BINS, len(ordered))
    size, larger = divmod(len(ordered), num_bins)
    ends = [number * size + min(number, larger) for number in range(1, num_bins)]
    return sorted({*(float(ordered[end - 1] + ordered[end]) / 2.0 for end in ends), 1.0})


def _calibration_error(confidences: Floats, correct: Integers, bins: Sequence[float]) -> float:
    """Mean distance between confidence and accuracy over bins, weighted by their sizes."""
    import numpy as np

    pairs = np.column_stack((confidences, correct.astype(np.float64)))
    bin_indices = np.searchsorted(bins, confidences)
    order = np.argsort(bin_indices)
    members = np.split(pairs[order], np.searchsorted(bin_indices[order], range(1, len(bins))))
    shares = [len(one) * 1.0 / len(pairs) for one in members]
    distances = [abs(float(np.mean(one[:, 0]) - np.mean(one[:, 1]))) if len(one) else 0.0 for one in members]
    return float(np.dot(shares, distances))
