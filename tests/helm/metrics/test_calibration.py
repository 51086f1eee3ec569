"""Calibration beside the package that HELM takes it from."""

from __future__ import annotations

import importlib
import math
import random
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from assay.helm.metrics.calibration import calibration_of
from assay.helm.metrics.table import ContextTotals
from assay.helm.stats import MetricContext

package: Any = pytest.importorskip("calibration", reason="uncertainty-calibration is not installed")

SHAPES: dict[str, Callable[[random.Random], float]] = {
    "likely": lambda seeded: math.exp(-seeded.expovariate(1)),
    "unlikely": lambda seeded: math.exp(-seeded.expovariate(1 / 50)),
    "repeated": lambda seeded: seeded.choice([1.0, 0.5, 1e-20, 0.9, 0.99999999]),
    "beyond 1": lambda seeded: math.exp(seeded.gauss(0, 3)),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 11, 100, 3000])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_those_of_the_package(shape: str, count: int) -> None:
    seeded = random.Random(count)
    confidences = [SHAPES[shape](seeded) for _ in range(count)]
    correct = [int(seeded.random() < confidence**0.5) for confidence in confidences]
    ours = dict(calibration_of(totals(confidences, correct)))
    theirs = calibration_through_package(confidences, correct)
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        if name.startswith("platt_"):  # the machine's linear algebra decides where the iteration stops
            assert ours[name] == pytest.approx(value, rel=1e-6, abs=1e-6)
        else:
            assert ours[name] == value


def test_a_confidence_that_is_no_number_leaves_nothing_to_fit() -> None:
    names = [name for name, _ in calibration_of(totals([0.5, math.nan, 0.25], [1, 0, 0]))]
    assert names == ["ece_10_bin", "ece_1_bin", "selective_cov_acc_area", "selective_acc@10"]


def totals(confidences: list[float], correct: list[int]) -> ContextTotals:
    context = MetricContext("test", None, None)
    return ContextTotals(context, {}, array("d", confidences), array("b", correct), True, len(correct))


def calibration_through_package(confidences: list[float], correct: list[int]) -> dict[str, float]:
    np: Any = importlib.import_module("numpy")

    def errors(prefix: str, values: Any) -> dict[str, float]:
        by_mass, overall = (
            package.get_ece_em(values, correct, num_bins=10),
            package.get_ece(values, correct, num_bins=1),
        )
        return {f"{prefix}_10_bin": float(by_mass), f"{prefix}_1_bin": float(overall)}

    area, accuracy = package.get_selective_stats(confidences, correct)
    values = errors("ece", confidences)
    values |= {"selective_cov_acc_area": float(area), "selective_acc@10": float(accuracy)}
    if sum(correct) in (0, len(correct)):
        return values | {"platt_ece_10_bin": 0.0, "platt_ece_1_bin": 0.0}
    rescale, fitted = package.get_platt_scaler(np.array(confidences), np.array(correct), get_clf=True)
    values |= {"platt_coef": float(fitted.coef_[0][0]), "platt_intercept": float(fitted.intercept_[0])}
    return values | errors("platt_ece", rescale(np.array(confidences)))
