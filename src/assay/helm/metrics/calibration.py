"""Does the model's confidence say how often it is right?

Expected calibration error and Platt scaling as in Kumar, Liang & Ma 2019, https://arxiv.org/abs/1909.10155, through
their package, so that every value is HELM's. The logistic regression behind ``platt_*`` is found by an iterative
solver whose last digits depend on the machine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay.errors import MissingDependencyError

if TYPE_CHECKING:
    from assay.helm.metrics.table import ContextTotals, Named

_BINS = ((10, "10_bin"), (1, "1_bin"))


def calibration(totals: ContextTotals) -> Named:
    """Calibration of a context's instances; nothing where the model gives no log probabilities."""
    return calibration_of(totals) if totals.has_logprobs else []


def calibration_with_count(totals: ContextTotals) -> Named:
    """What HELM 0.2 gives: calibration in any case, and the number of instances."""
    return [*calibration_of(totals), ("num_instances", totals.num_instances)]


def calibration_of(totals: ContextTotals) -> Named:
    """Calibration of the instances that have both a confidence and an exact match."""
    import numpy as np

    confidences, correct = totals.confidences, totals.correct
    if not confidences:
        return []
    package = _package()
    area, accuracy_at_10 = package.get_selective_stats(confidences, correct)
    statistics: Named = [
        *_errors(package, "ece", confidences, correct),
        ("selective_cov_acc_area", float(area)),
        ("selective_acc@10", float(accuracy_at_10)),
    ]
    if sum(correct) in (0, len(correct)):  # nothing to fit: rescaled confidences would be perfect
        return [*statistics, *((f"platt_ece_{name}", 0.0) for _, name in _BINS)]
    rescale, classifier = package.get_platt_scaler(np.array(confidences), np.array(correct), get_clf=True)
    return [
        *statistics,
        ("platt_coef", float(classifier.coef_[0][0])),
        ("platt_intercept", float(classifier.intercept_[0])),
        *_errors(package, "platt_ece", rescale(np.array(confidences)), correct),
    ]


def _errors(package: Any, prefix: str, confidences: Any, correct: list[int]) -> Named:
    equal_mass = float(package.get_ece_em(confidences, correct, num_bins=10))
    overall = float(package.get_ece(confidences, correct, num_bins=1))
    return [(f"{prefix}_10_bin", equal_mass), (f"{prefix}_1_bin", overall)]


def _package() -> Any:
    try:
        return importlib.import_module("calibration")
    except ImportError:
        raise MissingDependencyError(
            "calibration needs the package uncertainty-calibration: pip install 'assay[helm]'"
        ) from None
