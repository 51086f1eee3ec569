"""The change detector: seldom a false alarm, at whatever distribution; soon a true one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from assay.stats.change_detector import ChangeDetector

RUN_LENGTH = 1000.0


def alarm_after(values: list[float], run_length: float = RUN_LENGTH) -> int | None:
    detector = ChangeDetector(1.0, run_length)
    for number, value in enumerate(values, 1):
        detector.add(value)
        if detector.is_alarm:
            return number
    return None


@pytest.mark.parametrize("kind", ["constant", "exponential", "rare and large"])
def test_a_false_alarm_within_n_values_has_at_most_probability_n_by_run_length(kind: str) -> None:
    source, paths, values = random.Random(kind), 1000, 100
    draws: dict[str, Callable[[], float]] = {
        "constant": lambda: 1.0,
        "exponential": lambda: source.expovariate(1.0),
        "rare and large": lambda: 100.0 if source.random() < 0.01 else 0.0,
    }
    draw = draws[kind]
    alarms = sum(alarm_after([draw() for _ in range(values)]) is not None for _ in range(paths))
    allowed = values / RUN_LENGTH
    assert alarms <= paths * allowed + 3 * (paths * allowed * (1 - allowed)) ** 0.5


@pytest.mark.parametrize(("size", "at_most"), [(100.0, 4), (10.0, 8), (3.0, 40)])
def test_a_change_is_found_soon_after_a_long_quiet_time(size: float, at_most: int) -> None:
    quiet = [0.5] * 500
    found = alarm_after(quiet + [size] * at_most, 26_000.0)
    assert found is not None
    assert found > len(quiet)


def test_a_detector_goes_on_from_its_state() -> None:
    whole, first = ChangeDetector(1.0, 50.0), ChangeDetector(1.0, 50.0)
    values = [0.5, 4.0, 0.1, 3.0]
    for value in values[:2]:
        first.add(value)
    second = ChangeDetector(1.0, 50.0, first.state)
    for value in values[2:]:
        second.add(value)
    for value in values:
        whole.add(value)
    assert second.state == whole.state


@pytest.mark.parametrize("state", [[1.0], [-1.0] * 16, [float("inf")] * 16])
def test_a_state_that_no_detector_has_is_refused(state: list[float]) -> None:
    with pytest.raises(ValueError, match="a state has"):
        ChangeDetector(1.0, 50.0, state)
