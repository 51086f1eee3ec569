"""The thinned course of a sequential test."""

from __future__ import annotations

import random
from math import isnan, log10, nan

import numpy as np
import pytest

from assay.stats.course import course_of
from assay.stats.plans import Decision, margin_plan, threshold_plan
from assay.stats.sequential import SequentialTest, confidence_sequence


def followed(test: SequentialTest, scores: list[float | None], weight: float = 1.0) -> SequentialTest:
    for score in scores:
        test.add(score, weight)
    return test


def test_the_evidence_crosses_where_the_test_decides() -> None:
    test = SequentialTest(threshold_plan(1319, 0.435, alpha=0.001, resolution=1))
    random_bits = random.Random(5)
    while test.decision is Decision.OPEN:
        test.add(float(random_bits.random() < 0.1))
    course = course_of(test)
    assert test.decision is Decision.FAIL
    assert course.seen == tuple(range(1, test.seen + 1))
    assert course.for_fail[-1] >= log10(1 / course.alpha) > max(course.for_fail[:-1])
    assert max(course.for_pass) < log10(1 / course.alpha)
    assert course.estimate[-1] == pytest.approx(test.estimate)
    assert course.high[-1] < course.threshold + 1 / 400


def test_a_long_course_is_thinned_and_keeps_its_end() -> None:
    test = SequentialTest(threshold_plan(5000, 0.5, alpha=0.01))
    followed(test, [float(number % 2) for number in range(3000)])
    course = course_of(test)
    assert course.seen[:40] == tuple(range(1, 41))
    assert course.seen[-1] == 3000
    assert len(course.seen) <= 240
    assert course.seen == tuple(sorted(set(course.seen)))
    ends = zip(course.low, course.estimate, course.high, strict=True)
    assert all(estimate is not None and low <= estimate <= high for low, estimate, high in ends)


def test_failed_documents_leave_the_estimate_open() -> None:
    test = followed(SequentialTest(threshold_plan(20, 0.5)), [None, None, 1.0, None, 0.0])
    course = course_of(test)
    assert course.estimate == (None, None, 1.0, 1.0, 0.5)
    assert not any(isnan(value) for value in course.low + course.high + course.for_pass + course.for_fail)


def test_differences_and_weights_are_followed_too() -> None:
    differences = followed(SequentialTest(margin_plan(100, 0.05, 0.01)), [0.0, -1.0, 1.0, 0.0])
    assert course_of(differences).threshold == -0.05
    assert course_of(differences).estimate[-1] == 0
    heavy = followed(SequentialTest(threshold_plan(100, 0.5)), [1.0, 0.0, 1.0], weight=2.0)
    course = course_of(heavy)
    assert course.estimate[-1] == pytest.approx(2 / 3)
    assert course.low[-1] == pytest.approx(max(heavy.interval().low, 0.04), abs=1 / 400)


def test_weights_of_one_change_nothing() -> None:
    plan = threshold_plan(50, 0.4)
    scores = [1.0, 0.0, nan, 1.0, 1.0]
    for plain, weighted in zip(
        confidence_sequence(plan, scores), confidence_sequence(plan, scores, np.ones(5)), strict=True
    ):
        assert (plain == weighted).all()
