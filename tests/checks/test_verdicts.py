"""Verdicts: they hold whatever failed samples would have scored, and nothing passes by being absent."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.checks.verdicts import judge, parse_maximum, parse_minimum, resolve_checks
from assay.errors import SpecificationError, UnknownMetricError
from assay.results.check_results import Verdict, worst
from assay.scoring.measure import Score
from assay.stats.intervals import failure_bounds
from assay.types import Check, Outcome

KEYS = {
    "gsm8k": ["exact_match,strict-match", "exact_match,flexible-extract"],
    "mmlu_pro": ["exact_match,custom-extract"],
}


def score(right: int, wrong: int, failed: int = 0) -> Score:
    n = right + wrong
    return Score(
        task="t",
        metric="acc,none",
        value=right / n if n else None,
        stderr=None,
        interval=None,
        bounds=failure_bounds(right, n, failed) if n + failed else None,
        n=n,
        outcomes={Outcome.ANSWERED: n, Outcome.FAILED: failed},
    )


def verdict(minimum: float, measured: Score) -> Verdict:
    return judge(Check(metric="acc,none", min=minimum, task="t"), [measured]).verdict


@pytest.mark.parametrize(
    ("text", "task", "metric", "minimum"),
    [
        ("exact_match,strict-match=0.6", None, "exact_match,strict-match", 0.6),
        ("gsm8k:exact_match,strict-match=1", "gsm8k", "exact_match,strict-match", 1.0),
        (" acc = 1e-2", None, "acc", 0.01),
        ("group::task:acc,none=0.5", "group::task", "acc,none", 0.5),
    ],
)
def test_a_minimum_is_read(text: str, task: str | None, metric: str, minimum: float) -> None:
    assert parse_minimum(text) == Check(metric=metric, min=minimum, task=task)


@pytest.mark.parametrize(
    "text", ["", "0.5", "=0.5", "acc", "acc=", "acc=high", "acc=nan", "acc=-inf", "acc=1e999", "gsm8k:=0.3"]
)
def test_what_is_no_minimum_is_refused(text: str) -> None:
    with pytest.raises(SpecificationError, match="is no minimum"):
        parse_minimum(text)


def test_a_check_finds_its_task_and_filter() -> None:
    resolved = resolve_checks(
        [
            Check(metric="exact_match,strict-match", min=0.1),
            Check(metric="exact_match", min=0.2, task="mmlu_pro"),
            Check(metric="exact_match,custom-extract", min=0.3),
        ],
        KEYS,
        ["gsm8k", "mmlu_pro"],
    )
    assert [(check.task, check.metric) for check in resolved] == [
        ("gsm8k", "exact_match,strict-match"),
        ("mmlu_pro", "exact_match,custom-extract"),
        ("mmlu_pro", "exact_match,custom-extract"),
    ]


def test_a_group_asked_for_by_name_is_meant_before_its_members() -> None:
    keys = {"group": ["acc,none"], "member": ["acc,none"]}
    (check,) = resolve_checks([Check(metric="acc,none", min=0.5)], keys, ["group"])
    assert check.task == "group"


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (Check(metric="acc,none", min=0.5), "exact_match,strict-match"),
        (Check(metric="exact_match,strict", min=0.5, task="gsm8k"), "did you mean exact_match,strict-match"),
        (Check(metric="exact_match", min=0.5, task="bbh"), "no task or group 'bbh'"),
    ],
)
def test_an_unknown_metric_or_task_is_refused_with_the_known_ones(check: Check, message: str) -> None:
    with pytest.raises(UnknownMetricError, match=message):
        resolve_checks([check], KEYS, ["gsm8k", "mmlu_pro"])


def test_a_check_that_could_mean_several_scores_is_refused() -> None:
    with pytest.raises(SpecificationError, match="gsm8k:exact_match,strict-match"):
        resolve_checks([Check(metric="exact_match", min=0.5, task="gsm8k")], KEYS, ["gsm8k"])


def test_the_threshold_itself_passes() -> None:
    assert verdict(0.435, score(435, 565)) is Verdict.PASS
    assert verdict(0.4351, score(435, 565)) is Verdict.FAIL


LEAST, MOST = Check(metric="acc,none", min=0.5, task="t"), Check(metric="acc,none", max=9, task="t")


@pytest.mark.parametrize("check", [LEAST, MOST])
def test_what_is_no_finite_number_never_passes(check: Check) -> None:
    met = float("inf") if check.min is not None else float("-inf")
    for value, expected in ((float("nan"), Verdict.INVALID), (met, Verdict.INVALID), (-met, Verdict.FAIL)):
        odd = msgspec.structs.replace(score(1, 1), value=value)
        assert judge(check, [odd]).verdict is expected


def test_nothing_measured_never_passes() -> None:
    assert verdict(0.0, score(0, 0)) is Verdict.INVALID
    assert verdict(0.0, score(0, 0, failed=5)) is Verdict.INVALID
    assert judge(Check(metric="acc,none", min=0.0, task="t"), []).verdict is Verdict.INVALID
    no_number = msgspec.structs.replace(score(1, 1), value=float("nan"))
    assert verdict(0.0, no_number) is Verdict.INVALID


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 20), st.floats(0, 1))
def test_a_verdict_holds_whatever_the_failed_samples_would_have_scored(
    right: int, wrong: int, failed: int, minimum: float
) -> None:
    total = right + wrong + failed
    if right + wrong == 0:
        return
    given_verdict = verdict(minimum, score(right, wrong, failed))
    possible = {(right + rescued) / total >= minimum for rescued in range(failed + 1)}
    if given_verdict is Verdict.PASS:
        assert possible == {True}
    elif given_verdict is Verdict.FAIL:
        assert possible == {False}
    else:
        assert failed


def test_failures_that_could_turn_it_make_it_invalid() -> None:
    assert verdict(0.5, score(50, 45, failed=5)) is Verdict.PASS
    assert verdict(0.5, score(49, 46, failed=5)) is Verdict.INVALID
    assert verdict(0.6, score(40, 50, failed=10)) is Verdict.FAIL


@pytest.mark.parametrize("minimum", [0.1, 0.52, 0.9], ids=["pass", "invalid", "fail"])
def test_the_score_is_in_the_reason_beside_its_bound(minimum: float) -> None:
    result = judge(Check(metric="acc,none", min=minimum, task="t"), [score(50, 45, failed=5)])
    assert "0.5263 without them" in result.reason


@pytest.mark.parametrize(
    ("minimum", "right", "reason"),
    [(0.6, 7219, "0.59998 < 0.6"), (0.6, 7220, "0.6001 >= 0.6"), (0.59998, 7219, "0.6000 >= 0.59998")],
)
def test_a_score_just_beside_its_threshold_is_not_shown_as_equal(minimum: float, right: int, reason: str) -> None:
    measured = score(right=right, wrong=12032 - right)
    assert judge(Check(metric="acc,none", min=minimum, task="t"), [measured]).reason == reason


def test_a_bound_just_beside_its_threshold_is_not_shown_as_equal() -> None:
    measured = score(right=7219, wrong=4803, failed=10)
    reason = judge(Check(metric="acc,none", min=0.6, task="t"), [measured]).reason
    assert "anywhere from 0.59998 to 0.6008" in reason


def test_the_worst_verdict_counts() -> None:
    results = [judge(Check(metric="acc,none", min=m, task="t"), [score(50, 45, failed=5)]) for m in (0.1, 0.52, 0.9)]
    assert [result.verdict for result in results] == [Verdict.PASS, Verdict.INVALID, Verdict.FAIL]
    assert worst(results[:1]).exit_code == 0
    assert worst(results[:2]).exit_code == 4
    assert worst(results).exit_code == 1


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (Check(metric="a,b"), "exactly one of min, max and baseline; it has none"),
        (Check(metric="a,b", min=0.1, max=0.2), "it has min and max"),
        (Check(metric="a,b", task="t", baseline="b.json"), "check on t a,b needs a margin"),
        (Check(metric="a,b", min=0.1, margin=0.1), "no baseline"),
        (Check(metric="a,b", baseline="b.json", margin=-0.1), "margin -0.1"),
        (Check(metric="a,b", min=0.1, alpha=0.0), "alpha 0"),
        (Check(metric="a,b", min=float("-inf")), "min -inf; it must be a finite number"),
        (Check(metric="a,b", max=float("nan")), "max nan; it must be a finite number"),
    ],
)
def test_a_check_that_makes_no_sense_is_refused(check: Check, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        resolve_checks([check], {"t": ["a,b"]}, ["t"])


def test_a_maximum_is_met_from_below() -> None:
    def judged(maximum: float, measured: Score) -> Verdict:
        return judge(Check(metric="acc,none", max=maximum, task="t"), [measured]).verdict

    assert parse_maximum("t:wer,none=0.2") == Check(metric="wer,none", max=0.2, task="t")
    assert judged(0.435, score(435, 565)) is Verdict.PASS
    assert judged(0.4349, score(435, 565)) is Verdict.FAIL
    assert judged(0.55, score(50, 45, failed=5)) is Verdict.PASS
    assert judged(0.52, score(50, 45, failed=5)) is Verdict.INVALID
    assert judged(0.4, score(50, 45, failed=5)) is Verdict.FAIL


def test_without_checks_nothing_passes() -> None:
    assert worst([]) is Verdict.INVALID
    assert Verdict.INCONCLUSIVE.exit_code == 3


def test_a_demand_in_per_cent_is_told_as_the_share_to_write() -> None:
    with pytest.raises(SpecificationError, match=r"write 0\.59 for 59 %"):
        parse_minimum("exact_match=59%")
