"""Wrong verdicts of early stopping on other scores than right or wrong: graded, rare, weighted, unbounded.

Every setting puts the threshold where it is hardest, right beside the mean of all documents, or where rare scores tempt
to stop too soon. The page gets the tables::

    python -m benchmarks.simulate_scores --write docs/statistics.md
"""

from __future__ import annotations

import argparse
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.checks.scope import Scope
from assay.checks.sequential import SequentialCheck
from assay.stats.many import first_crossings
from assay.stats.plans import Decision, SequentialPlan, threshold_plan
from assay.stats.sampling import document_weights, random_order
from assay.types import Check
from benchmarks.pages import publish, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from assay.stats.plans import Weight

    Floats = NDArray[np.float64]

ALPHAS = (0.05, 0.01, 0.001)
BESIDE = 1e-6
"""How far from the mean the hardest thresholds lie."""
CHUNK = 200
UNBOUNDED_ORDERS = 200
EXACT_GROUPS = 10_000


class Setting(NamedTuple):
    """A benchmark's scores, and what they are held against."""

    name: str
    scores: Floats
    thresholds: tuple[float, ...]
    limits: tuple[float, float] = (0.0, 1.0)
    weights: Sequence[Weight] | None = None

    @property
    def exact_weights(self) -> Sequence[Weight]:
        """Of each document; 1 where all count the same."""
        return [1.0] * self.scores.size if self.weights is None else self.weights


def beside(mean: float) -> tuple[float, ...]:
    return (mean + BESIDE, mean - BESIDE, mean + 0.02, mean - 0.02)


def rare(n: int, times: int, score: float = 1.0) -> Floats:
    return np.repeat([score, 0.0], [times, n - times])


def group(sizes: Sequence[int], shares: Sequence[float], name: str) -> Setting:
    """Subtasks that weigh alike, each with its share of right answers."""
    rights = [round(share * size) for share, size in zip(shares, sizes, strict=True)]
    scores = np.concatenate([rare(size, right) for size, right in zip(sizes, rights, strict=True)])
    each = document_weights(sizes, [1] * len(sizes))
    weights = [weight for weight, size in zip(each, sizes, strict=True) for _ in range(size)]
    mean = float(sum(Fraction(right, size) for right, size in zip(rights, sizes, strict=True)) / len(sizes))
    return Setting(name, scores, beside(mean), weights=weights)


def settings() -> Iterator[Setting]:
    even = np.linspace(0, 1, 500)
    yield Setting("graded evenly, N 500", even, beside(float(even.mean())))
    credit = np.repeat([0.0, 0.5, 1.0], [60, 250, 190])
    yield Setting("part of the credit for half of them, N 500", credit, beside(float(credit.mean())))
    yield Setting("all but alike (0.49, 0.51), N 500", np.repeat([0.49, 0.51], 250), beside(0.5))
    yield Setting("1 % right, threshold 1 %, N 1000", rare(1000, 10), (0.01, 0.0101, 0.0099, 0.011, 0.009))
    yield Setting("99 % right, threshold 99 %, N 1000", 1 - rare(1000, 10), (0.99, 0.9901, 0.9899))
    yield Setting(
        "10 of 1000 with 40 errors, range [0, 40]", rare(1000, 10, 40.0), (0.2, 0.3, *beside(0.4)), (0.0, 40.0)
    )
    yield group((5, 1000), (0.6, 0.5), "5 and 1000 documents that weigh alike")
    yield group((20, 50, 200, 1000), (0.4, 0.6, 0.5, 0.7), "20, 50, 200 and 1000 that weigh alike")


def wrong_decisions(setting: Setting, threshold: float, *, higher: bool, runs: int) -> list[float]:
    """Share of random orders that are decided wrongly, at each of the error rates."""
    n = setting.scores.size
    plan = threshold_plan(n, threshold, support=setting.limits, higher_is_better=higher)
    weights = np.array(setting.exact_weights, dtype=np.float64)
    truth = plan.decide_exactly(setting.scores, setting.exact_weights)
    random = np.random.default_rng(17)
    wrong = np.zeros(len(ALPHAS))
    for start in range(0, runs, CHUNK):
        orders = random.permuted(np.tile(np.arange(n), (min(CHUNK, runs - start), 1)), axis=1)
        evidence = plan.gains_and_losses(setting.scores[orders], weights[orders])
        for place, alpha in enumerate(ALPHAS):
            for_pass, for_fail = first_crossings(plan.portfolio(orders.shape[0], alpha), evidence, 1 / alpha)
            early = np.minimum(for_pass, for_fail) < n
            passed = for_pass < for_fail
            wrong[place] += (early & (passed != (truth is Decision.PASS))).sum()
    return [float(share) for share in wrong / runs]


def kinds(runs: int) -> str:
    rows = []
    for setting in settings():
        found = [
            wrong_decisions(setting, threshold, higher=higher, runs=runs)
            for threshold in setting.thresholds
            for higher in (True, False)
        ]
        rows.append([setting.name, *(f"{100 * rate:.3g} %" for rate in np.max(found, axis=0)), f"{runs}"])
        print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    rows.append(["10 of 1000 with 40 errors, range not known", *unbounded(min(runs, UNBOUNDED_ORDERS))])
    header = ["scores", *(f"wrong at α = {100 * alpha:g} %" for alpha in ALPHAS), "orders"]
    return table(header, rows)


class Scores:
    """A benchmark's scores, as a check reads them."""

    def __init__(self, scores: Floats) -> None:
        self._scores = scores.tolist()

    def value(self, task: str, doc_id: int, metric: str) -> Any:  # noqa: ARG002
        """A document's score."""
        return self._scores[doc_id]

    def identity(self, task: str, doc_id: int) -> tuple[str, str]:
        """Of the document and its prompt."""
        return f"{task} {doc_id}", "prompt"


def unbounded(runs: int) -> list[str]:
    """Checks whose metric has no known range: nothing is decided before the last document."""
    scores = rare(1000, 10, 40.0)
    book, cells = Scores(scores), []
    for alpha in ALPHAS:
        decided = 0
        for seed in range(runs):
            for least, most in ((None, 0.2), (0.3, None)):
                check = Check(metric="errors,none", task="t", alpha=alpha, min=least, max=most)
                followed = SequentialCheck(check, Scope(tasks=("t",), range=None), {"t": scores.size})
                for doc_id in random_order(scores.size, seed):
                    followed.observe("t", doc_id, book)
                decided += not followed.is_open
        cells.append(f"{100 * decided / runs:.3g} %")
    return [*cells, f"{runs}"]


def exact_groups(groups: int) -> str:
    """Groups whose threshold is their own mean, as the nearest float: how often it is missed."""
    random = np.random.default_rng(5)
    missed = by_floats = 0
    for _ in range(groups):
        sizes = random.integers(1, 60, random.integers(2, 7)).tolist()
        rights = [int(random.integers(0, size + 1)) for size in sizes]
        mean = float(sum(Fraction(right, size) for right, size in zip(rights, sizes, strict=True)) / len(sizes))
        averages = [right / size for right, size in zip(rights, sizes, strict=True)]
        each = document_weights(sizes, [1] * len(sizes))
        scores = np.concatenate([rare(size, right) for size, right in zip(sizes, rights, strict=True)])
        weights = [weight for weight, size in zip(each, sizes, strict=True) for _ in range(size)]
        plans = [threshold_plan(scores.size, mean, higher_is_better=higher) for higher in (True, False)]
        missed += any(not meets(plan, scores, weights) for plan in plans)
        by_floats += any(not plan.satisfied_by(sum(averages) / len(averages)) for plan in plans)
    rows = [
        ["exact fractions, rounded once", f"{missed}", f"{groups}"],
        ["floats, as lm-eval averages", f"{by_floats}", f"{groups}"],
    ]
    return table(["the aggregate is formed in", "missed", "groups"], rows)


def meets(plan: SequentialPlan, scores: Floats, weights: Sequence[Weight]) -> bool:
    return plan.decide_exactly(scores, weights) is Decision.PASS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="random orders a setting")
    parser.add_argument("--write", type=Path, help="page whose sections are replaced; else they are printed")
    arguments = parser.parse_args()
    publish([("kinds-errors", kinds(arguments.runs)), ("exact-groups", exact_groups(EXACT_GROUPS))], arguments.write)


if __name__ == "__main__":
    main()
