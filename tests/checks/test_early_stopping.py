"""Early stopping: verdicts depend on the random order and the answers alone, and hold their error rates."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.checks.early_stopping import EarlyStopper, seed_of, tokens_of
from assay.checks.scope import Scope
from assay.checks.sequential import SequentialCheck
from assay.client.concurrency import Concurrency
from assay.results.check_results import CheckResult, Verdict
from assay.runs.record import RecordedRun, TaskRecord
from assay.types import Answer, Budget, Check, EarlyStopping, Request, Sample

KEY = "exact_match,none"


@dataclass
class Book:
    """Scores decided beforehand; known to the follower once their sample was scored."""

    scores: dict[str, list[Any]]
    seen: list[tuple[str, int]] = field(default_factory=list)

    def score(self, sample: Sample, responses: Any) -> None:
        self.seen.append((sample.task, sample.doc_id))

    def value(self, task: str, doc_id: int, metric: str) -> Any:
        assert (task, doc_id) in self.seen[-1:]
        return self.scores[task][doc_id]

    def identity(self, task: str, doc_id: int) -> tuple[str, str]:
        return f"{task} {doc_id}", f"prompt {doc_id}"


def baseline_of(scores: dict[str, list[float]]) -> RecordedRun:
    tasks = {
        name: TaskRecord(
            name=name,
            settings={},
            doc_ids=tuple(range(len(values))),
            documents=tuple(f"{name} {doc_id}" for doc_id in range(len(values))),
            prompts=tuple(f"prompt {doc_id}" for doc_id in range(len(values))),
            scores={KEY: tuple(map(float, values))},
        )
        for name, values in scores.items()
    }
    return RecordedRun(source="b.json", model="m", date="", tasks=tasks)


def followed(check: Check, scores: dict[str, list[Any]], *, baseline: Any = None, **scope: Any) -> SequentialCheck:
    tasks = (check.task,) if check.task in scores else tuple(scores)
    sizes = {name: len(values) for name, values in scores.items()}
    return SequentialCheck(
        check,
        Scope(tasks=tasks, range=(0.0, 1.0), right_or_wrong=True, **scope),
        sizes,
        None if baseline is None else baseline_of(baseline),
    )


def answered(task: str, doc_id: int, *, counts_tokens: bool = True) -> tuple[Sample, list[Answer]]:
    """A sample of one request, and its answer of ten tokens."""
    request = Request(task, doc_id, 0, 0, "generate_until", b"x" * 28, f"{task} {doc_id}")
    usage = (7, 3) if counts_tokens else (None, None)
    return Sample(task, doc_id, {}, [], [request]), [
        Answer(text="y" * 12, prompt_tokens=usage[0], completion_tokens=usage[1])
    ]


def run(
    checks: list[SequentialCheck],
    scores: dict[str, list[Any]],
    *,
    seed: int = 1,
    in_flight: int = 16,
    arrival: int | None = None,
    **stopping: Any,
) -> tuple[EarlyStopper, Book]:
    """Ask `in_flight` documents at once; answers arrive in an order of their own."""
    lookup = Book(scores)
    numbers = {name: range(len(values)) for name, values in scores.items()}
    stopper = EarlyStopper(
        checks,
        numbers,
        EarlyStopping(**stopping),
        seed=seed,
        concurrency=Concurrency(in_flight),
        score=lookup.score,
        lookup=lookup,
    )
    arrivals = random.Random(arrival)
    out: list[tuple[str, int]] = []
    documents = stopper.draw()
    while True:
        while len(out) < in_flight and (drawn := next(documents, None)):  # None, too, where it is to wait
            out.append(drawn)
        if not out:
            return stopper, lookup
        task, doc_id = out.pop(0 if arrival is None else arrivals.randrange(len(out)))
        stopper.receive(*answered(task, doc_id))


def share(n: int, right: float, seed: int = 0) -> list[int]:
    scores = [1] * round(n * right) + [0] * (n - round(n * right))
    random.Random(seed).shuffle(scores)
    return scores


def minimum(value: float, task: str = "t", alpha: float = 0.001) -> Check:
    return Check(metric=KEY, task=task, min=value, alpha=alpha)


def test_the_possible_scores_of_a_decided_check_all_give_its_verdict() -> None:
    """Without an error of rounding: 24 of 80 documents are a score of 0.3, and not a little more."""
    for seed in range(40):
        scores = {"t": share(80, 0.1, seed)}
        check = followed(Check(metric=KEY, task="t", max=0.3, alpha=0.1), scores)
        run([check], scores)
        interval = check.result().interval
        assert interval is not None
        assert check.result().verdict is Verdict.PASS
        assert interval.high <= 0.3


@pytest.mark.parametrize(
    ("score", "verdict", "at_most"),
    [(0.0, Verdict.FAIL, 20), (0.217, Verdict.FAIL, 120), (0.635, Verdict.PASS, 200), (0.99, Verdict.PASS, 60)],
)
def test_a_clear_case_takes_few_documents(score: float, verdict: Verdict, at_most: int) -> None:
    scores = {"t": share(1319, score)}
    check = followed(minimum(0.435), scores)
    stopper, lookup = run([check], scores)
    result = check.result()
    assert result.verdict is verdict
    assert result.n == len(lookup.seen) <= at_most
    assert result.interval is not None
    assert result.interval.low <= score <= result.interval.high
    summary = stopper.summary()
    assert summary is not None
    assert summary.documents == result.n <= summary.asked <= result.n + 16
    assert summary.tasks == {"t": (result.n, 1319)}


def test_timing_and_concurrency_change_nothing() -> None:
    scores = {"t": share(500, 0.6), "u": share(300, 0.3)}

    def results(in_flight: int, arrival: int | None) -> tuple[list[CheckResult], list[tuple[str, int]]]:
        checks = [
            followed(minimum(0.45), scores),
            followed(minimum(0.5, "u"), scores),
            followed(minimum(0.4, "g"), scores),
        ]
        _, lookup = run(checks, scores, in_flight=in_flight, arrival=arrival)
        return [check.result() for check in checks], lookup.seen

    alone = results(1, None)
    assert [result.verdict for result in alone[0]] == [Verdict.PASS, Verdict.FAIL, Verdict.PASS]
    for arrival in range(5):
        assert results(64, arrival) == alone


def test_a_request_that_hangs_does_not_have_everything_asked() -> None:
    scores = {"t": share(1000, 0.9)}
    check = followed(minimum(0.5), scores)
    lookup = Book(scores)
    stopper = EarlyStopper(
        [check],
        {"t": range(1000)},
        EarlyStopping(),
        seed=1,
        concurrency=Concurrency(4),
        score=lookup.score,
        lookup=lookup,
    )
    documents = stopper.draw()
    slow = next(documents)
    assert slow is not None
    others = []
    while (drawn := next(documents)) is not None:
        others.append(drawn)
        stopper.receive(*answered(*drawn))
    assert next(documents) is None
    assert len(others) == 16 * 4 - 1
    assert lookup.seen == []
    stopper.receive(*answered(*slow))
    assert lookup.seen[0] == slow
    assert check.result().verdict is Verdict.PASS
    assert next(documents, "ended") == "ended"


class Searching(Concurrency):
    """Has found that a thousand requests at once are best."""

    is_searching = True


@pytest.mark.parametrize("arrival", ["in order", "in any order"])
def test_where_assay_chooses_little_is_asked_in_vain(arrival: str) -> None:
    """Answers that wait for a slow one are not counted either: more is asked only when few are left on their way."""
    scores = {"t": share(1000, 0.55)}
    check = followed(minimum(0.5), scores)
    lookup = Book(scores)
    stopper = EarlyStopper(
        [check],
        {"t": range(1000)},
        EarlyStopping(),
        seed=1,
        concurrency=Searching(1000),
        score=lookup.score,
        lookup=lookup,
    )
    documents = stopper.draw()
    out: list[tuple[str, int]] = []
    arrivals = random.Random(1)
    asked = 0
    while True:
        while drawn := next(documents, None):
            out.append(drawn)
            asked += 1
        most = max(32, stopper.counted["t"] // 2)
        assert asked - stopper.counted["t"] <= most or len(out) <= most // 4
        if not out:
            break
        stopper.receive(*answered(*out.pop(0 if arrival == "in order" else arrivals.randrange(len(out)))))
    assert stopper.counted["t"] > 100


def test_a_request_that_hangs_does_not_leave_the_server_idle() -> None:
    scores = {"t": share(1000, 0.55)}
    lookup = Book(scores)
    stopper = EarlyStopper(
        [followed(minimum(0.5), scores)],
        {"t": range(1000)},
        EarlyStopping(),
        seed=1,
        concurrency=Searching(1000),
        score=lookup.score,
        lookup=lookup,
    )
    documents = stopper.draw()
    hanging = next(documents)
    out: list[tuple[str, int]] = []
    for _ in range(200):
        while drawn := next(documents, None):
            out.append(drawn)
        assert len(out) >= 7
        stopper.receive(*answered(*out.pop(0)))
    assert hanging is not None
    assert stopper.counted["t"] == 0


def test_a_decided_tasks_documents_are_no_longer_asked() -> None:
    scores = {"t": share(1000, 0.0), "u": share(1000, 0.52)}
    checks = [followed(minimum(0.5), scores), followed(minimum(0.5, "u"), scores)]
    stopper, _ = run(checks, scores)
    assert stopper.counted["t"] < 30
    assert stopper.is_complete(checks[1]) or stopper.counted["u"] > 100


def test_all_documents_are_asked_where_it_is_close() -> None:
    scores = {"t": share(200, 0.5)}
    check = followed(minimum(0.5), scores)
    stopper, _ = run([check], scores)
    assert stopper.is_complete(check)
    assert stopper.summary() is None


def test_a_baseline_check_decides_on_differences() -> None:
    before = share(1319, 0.7)
    alike = {"t": [1 - score if place % 100 == 0 else score for place, score in enumerate(before)]}
    check = Check(metric=KEY, task="t", baseline="b.json", margin=0.03)
    healthy = followed(check, alike, baseline={"t": before})
    run([healthy], alike)
    assert healthy.result().verdict is Verdict.PASS
    assert healthy.result().n < 700
    interval = healthy.result().interval
    assert interval is not None
    assert interval.low >= -0.03  # what passes lies within the margin
    worse = {"t": [0 if place % 4 == 0 else score for place, score in enumerate(before)]}
    broken = followed(check, worse, baseline={"t": before})
    run([broken], worse)
    result = broken.result()
    assert result.verdict is Verdict.FAIL
    assert result.n < 300
    assert result.lost is not None
    assert result.lost > 10
    assert result.gained == 0
    assert result.difference is not None
    assert result.difference < -0.03
    assert "beyond the margin" in result.reason


def test_graded_scores_and_maxima() -> None:
    graded = {"t": [0.25, 0.75, 1.0, 0.8] * 200}
    check = SequentialCheck(minimum(0.5), Scope(tasks=("t",), range=(0.0, 1.0)), {"t": 800})
    stopper, _ = run([check], graded)
    assert check.result().verdict is Verdict.PASS
    assert not stopper.is_complete(check)
    for share_wrong, verdict in ((0.05, Verdict.PASS), (0.6, Verdict.FAIL)):
        errors = {"t": share(800, share_wrong)}
        check = followed(Check(metric=KEY, task="t", max=0.3), errors, higher_is_better=False)
        run([check], errors)
        assert check.result().verdict is verdict
        assert check.result().n < 200
        against = Check(metric=KEY, task="t", baseline="b.json", margin=0.1)
        check = followed(against, errors, baseline={"t": [0.0] * 800}, higher_is_better=False)
        run([check], errors)
        assert check.result().verdict is verdict


def test_another_document_or_prompt_is_a_mismatch_at_once() -> None:
    before = {"t": [1.0] * 100}
    check = Check(metric=KEY, task="t", baseline="b.json", margin=0.1)
    scores = {"t": [1] * 150}
    followed_check = followed(check, scores, baseline=before)
    _, lookup = run([followed_check], scores)
    result = followed_check.result()
    assert result.verdict is Verdict.INVALID
    assert "is not in it" in result.reason
    assert len(lookup.seen) < 150


def test_allowed_mismatches_count_where_the_document_is_the_same() -> None:
    before, scores = {"t": [1.0] * 100}, {"t": [1] * 120}
    check = Check(metric=KEY, task="t", baseline="b.json", margin=0.3, allow_mismatch=True)
    followed_check = followed(check, scores, baseline=before)
    run([followed_check], scores)
    result = followed_check.result()
    assert result.verdict is Verdict.PASS
    assert result.failed > 0


def test_failed_documents_support_neither_side() -> None:
    half_failed = {"t": [None if place % 2 else 1 for place in range(400)]}
    check = followed(minimum(0.6), half_failed)
    stopper, _ = run([check], half_failed)
    assert stopper.is_complete(check)  # half right and half unknown: the whole run cannot tell either
    few = {"t": [None if place % 50 == 0 else 1 for place in range(400)]}
    check = followed(minimum(0.6), few)
    run([check], few)
    assert check.result().verdict is Verdict.PASS


@pytest.mark.parametrize(
    "budget", [Budget(documents=40), Budget(tokens=400), Budget(minutes=0.0)], ids=["documents", "tokens", "minutes"]
)
def test_an_exhausted_budget_is_inconclusive(budget: Budget) -> None:
    scores = {"t": share(1000, 0.55)}
    check = followed(minimum(0.5), scores)
    _, lookup = run([check], scores, budget=budget)
    result = check.result()
    if budget.minutes is not None:
        assert (result.verdict, lookup.seen) == (Verdict.INVALID, [])
        return
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.n == len(lookup.seen) == 40
    assert result.more_needed is not None
    assert 40 < result.more_needed <= 960
    assert f"about {result.more_needed} more would probably decide" in result.reason


def test_tokens_that_the_server_does_not_count_are_estimated() -> None:
    sample, (answer,) = answered("t", 0, counts_tokens=False)
    assert tokens_of(sample, [answer]) == (28 + 12) // 4 == tokens_of(*answered("t", 0))


@pytest.mark.parametrize("counted", [None, 0, -1])
def test_a_budget_ends_whatever_the_server_counts(counted: int | None) -> None:
    sample, _ = answered("t", 0)
    assert tokens_of(sample, [Answer(text="", prompt_tokens=counted, completion_tokens=counted)]) == 28 // 4
    assert tokens_of(sample, [Answer(text="y" * 12, prompt_tokens=20, completion_tokens=counted)]) == 20 + 12 // 4


def test_metrics_that_are_no_means_are_decided_only_by_the_whole_run() -> None:
    scores = {"t": [[True, False]] * 50}
    check = followed(minimum(0.1), scores)
    stopper, _ = run([check], scores)
    assert stopper.is_complete(check)
    check = followed(minimum(0.1), scores, is_mean=False)
    run([check], scores, budget=Budget(documents=10))
    assert check.result().verdict is Verdict.INCONCLUSIVE
    assert check.result().more_needed == 40
    graded = {"t": [17.0] * 50}
    check = followed(minimum(0.1), graded)
    assert run([check], graded)[0].is_complete(check)


def test_holm_never_needs_more_documents_than_bonferroni() -> None:
    scores = {"t": share(1000, 0.62), "u": share(1000, 0.9), "v": share(1000, 0.1)}

    def asked(holm: bool) -> tuple[int, list[Verdict]]:
        checks = [followed(minimum(0.5, name, alpha=0.003), scores) for name in scores]
        stopper, _ = run(checks, scores, holm=holm)
        assert any("by Holm's method" in check.result().reason for check in checks) is holm
        return sum(stopper.counted.values()), [check.result().verdict for check in checks]

    (with_holm, verdicts), (without, same) = asked(True), asked(False)
    assert verdicts == same == [Verdict.PASS, Verdict.PASS, Verdict.FAIL]
    assert with_holm < without


def test_a_plain_mean_of_unequal_tasks_is_estimated_without_bias() -> None:
    """The large task must not drown the small one: over many orders the estimates average to the aggregate."""
    scores = {"t": share(40, 0.2), "u": share(360, 0.8)}
    estimates = []
    for seed in range(300):
        check = followed(minimum(0.5, "g"), scores, weighted_by_size=False)
        run([check], scores, seed=seed, budget=Budget(documents=60))
        assert check.test is not None
        weights = [check.scope.weights({"t": 40, "u": 360})[task] for task in scores]
        assert weights == [5.0, pytest.approx(400 / 2 / 360)]
        values = check.test
        estimates.append(values.estimate)
    assert sum(estimates) / len(estimates) == pytest.approx(0.5, abs=0.03)


def test_the_score_so_far_averages_tasks_as_the_group_does() -> None:
    scores: dict[str, list[Any]] = {"t": [0], "u": [1] * 120}
    check = followed(minimum(0.2, "g"), scores, weighted_by_size=False)
    book = Book(scores)
    for task, doc_id in [("t", 0), ("u", 0), ("u", 1), ("u", 2)]:
        book.seen.append((task, doc_id))
        check.observe(task, doc_id, book)
    assert check.value_so_far == 0.5


def test_wrong_verdicts_stay_below_alpha() -> None:
    """One document short of the threshold: a pass is wrong; over many orders it must be rare."""
    scores = {"t": share(198, 98 / 198)}
    wrong = 0
    for seed in range(200):
        check = followed(minimum(99 / 198, alpha=0.05), scores)
        stopper, _ = run([check], scores, seed=seed)
        wrong += not stopper.is_complete(check) and check.result().verdict is Verdict.PASS
    assert wrong <= 20  # 10 expected at most; P(more than 20) < 0.002


def test_wrong_verdicts_stay_below_alpha_for_a_plain_mean_of_unequal_tasks() -> None:
    """The aggregate is one document short of the threshold, though the mean over documents is far above it."""
    scores = {"t": share(20, 0.25), "u": share(160, 0.75)}
    wrong = 0
    for seed in range(80):
        check = followed(minimum(0.5 + 0.003, "g", alpha=0.05), scores, weighted_by_size=False)
        stopper, _ = run([check], scores, seed=seed)
        wrong += not stopper.is_complete(check) and check.result().verdict is Verdict.PASS
    assert wrong <= 11  # 4 expected at most; P(more than 11) < 0.001


def test_the_order_varies_with_the_run_and_is_kept_with_it() -> None:
    assert seed_of("a.journal") == seed_of("a.journal") != seed_of("b.journal")
