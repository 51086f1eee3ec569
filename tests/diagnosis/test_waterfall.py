"""The causes share a loss: upstream first, each sample once, and the sum is the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.diagnosis.causes import Cause
from assay.diagnosis.evidence import Evidence
from assay.diagnosis.facts import SampleFacts
from assay.diagnosis.findings import Confidence, Finding, LossReference
from assay.diagnosis.judging import Found
from assay.diagnosis.run import diagnose
from assay.diagnosis.waterfall import own_gains, waterfall_of
from assay.stats.intervals import mean_interval
from tests.diagnosis.test_triage import UNKNOWN


def found(cause: Cause, repaired: dict[int, float], *, is_cause: bool = True) -> Found:
    finding = Finding(
        cause=cause,
        evidence="seen",
        advice="do",
        samples=len(repaired),
        of=10,
        confidence=Confidence.CERTAIN,
        is_cause=is_cause,
    )
    places = {("t", number): score for number, score in repaired.items()}
    return Found(finding, frozenset(places), places)


def evidence(scores: list[float]) -> Evidence:
    samples = [
        SampleFacts(task="t", doc_id=number, score=score, is_generated=True) for number, score in enumerate(scores)
    ]
    return Evidence(samples, UNKNOWN, None)


def test_a_sample_belongs_to_the_first_cause_upstream() -> None:
    ten = evidence([0.0] * 8 + [1.0, 1.0])
    missed = found(Cause.EXTRACTION_MISSED, dict.fromkeys(range(6), 1.0))
    leaked = found(Cause.REASONING_LEAKED, {0: 1.0, 1: 1.0, 2: 0.5})
    waterfall = waterfall_of(ten, [missed, leaked])
    assert waterfall is not None
    assert [share.cause for share in waterfall.shares] == [Cause.REASONING_LEAKED, Cause.EXTRACTION_MISSED]
    assert [share.gain for share in waterfall.shares] == pytest.approx([0.25, 0.35])
    assert (waterfall.score, waterfall.target, waterfall.target_is) == (0.2, 1.0, LossReference.FULL)
    assert waterfall.unexplained == pytest.approx(0.2)


def test_what_is_no_cause_and_what_lowers_the_score_has_no_share() -> None:
    ten = evidence([0.5] * 10)
    remark = found(Cause.EXTRACTION_MISSED, {0: 1.0}, is_cause=False)
    worse = found(Cause.REASONING_LEAKED, {1: 0.25})
    assert own_gains(ten, [remark, worse]) == [{}, {}]


def test_there_is_no_waterfall_without_a_loss() -> None:
    assert waterfall_of(evidence([1.0, 1.0]), []) is None


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=30).filter(lambda scores: min(scores) < 1),
    st.data(),
)
def test_the_parts_come_to_the_whole(scores: list[float], data: Any) -> None:
    causes = data.draw(st.lists(st.sampled_from(list(Cause)), max_size=5, unique=True))
    numbers = st.integers(0, len(scores) - 1)
    parts = [
        found(cause, data.draw(st.dictionaries(numbers, st.floats(0, 1), max_size=len(scores)))) for cause in causes
    ]
    waterfall = waterfall_of(evidence(scores), parts)
    assert waterfall is not None
    total = waterfall.score + sum(share.gain for share in waterfall.shares) + waterfall.unexplained
    assert total == pytest.approx(waterfall.target)
    best = [
        max([score, *(part.repaired.get(("t", number), 0.0) for part in parts)]) for number, score in enumerate(scores)
    ]
    assert waterfall.score + sum(share.gain for share in waterfall.shares) == pytest.approx(sum(best) / len(best))
    for share in waterfall.shares:
        assert 0 <= share.low <= share.gain <= share.high


def test_the_interval_is_students() -> None:
    waterfall = waterfall_of(evidence([0.0] * 10), [found(Cause.EMPTY, {0: 1.0, 1: 0.5, 2: 1.0})])
    assert waterfall is not None
    expected = mean_interval([1.0, 0.5, 1.0] + [0.0] * 7)
    (share,) = waterfall.shares
    assert [share.low, share.high] == pytest.approx([max(0.0, expected.low), expected.high])


def test_a_consequence_does_not_outrank_its_cause() -> None:
    """Leaked reasoning holds other numbers, so that the filter reads the wrong one."""
    leaking: dict[str, Any] = {"is_generated": True, "altered": ("reasoning",), "missed": "after ####"}
    samples = [
        SampleFacts(task="t", doc_id=number, score=0.0, repaired=(float(number % 10 > 0),), **leaking)
        for number in range(100)
    ]
    triage = diagnose(Evidence(samples, UNKNOWN, None))
    assert triage.causes[0].cause is Cause.REASONING_LEAKED
    assert triage.waterfall is not None
    assert triage.waterfall.shares[0].gain == pytest.approx(0.9)
