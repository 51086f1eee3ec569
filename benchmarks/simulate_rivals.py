"""Early stopping beside the best known sequential tests, in documents.

Every rival is a rule for the stake c of the bet 1 − c + c·x/m (see :mod:`assay.stats.betting`), which it chooses from
what was seen. All see the same random orders, bet against the same claims, and stop at a wealth of 1/α. The page gets
the table::

    python -m benchmarks.simulate_rivals --write docs/statistics.md

Sources: Stark (2023), "ALPHA", Ann. Appl. Stat. 17:641; Waudby-Smith and Ramdas (2020), "Confidence sequences for
sampling without replacement", NeurIPS (prior-posterior ratio); the same (2023), "Estimating means of bounded random
variables by betting", JRSS-B 86:1 (diversified Kelly, hedged); Wald (1945), Ann. Math. Stat. 16:117 (SPRT).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from assay.stats.many import decide_many
from assay.stats.plans import threshold_plan
from benchmarks.pages import publish, table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

N, THRESHOLD, NEEDED = 1319, 0.435, 574
TRUTHS = (0.0, 0.2, 0.3, 0.38, 0.42, 0.45, 0.5, 0.6)
ALPHAS = (0.01, 0.001)


class Seen(NamedTuple):
    """What a rule may look at before document t, in each of many runs."""

    t: int
    sums: Floats
    variance: Floats
    """Σ(x − mean up to x)², and one quarter, over t."""
    claimed: Floats
    """m: the next value's expectation if the claim just holds."""
    null: float
    """The mean claimed."""
    alpha: float


Rule = Callable[[Seen], "Floats"]
"""To the stakes of one gambler or several with equal wealth, of shape (runs, gamblers)."""


def towards(expected: Floats, seen: Seen) -> Floats:
    """The stake with which the wealth is the likelihood ratio of ``expected`` against what is claimed."""
    return (expected - seen.claimed) / np.maximum(1 - seen.claimed, 1e-12)


def alpha_rule(d: float, ahead: Callable[[float], float]) -> Rule:
    """ALPHA's shrink-and-truncate estimate, which starts at ``ahead`` of the null and weighs that as d documents."""

    def rule(seen: Seen) -> Floats:
        start = ahead(seen.null)
        weight = d + seen.t - 1
        least = seen.claimed + (start - seen.null) / 2 / weight**0.5
        estimate = np.clip((d * start + seen.sums) / weight, least, 1 - 1e-6)
        return np.clip(towards(estimate, seen), 0, 1)[:, None]

    return rule


def prior_posterior(seen: Seen) -> Floats:
    """The ratio of a uniform prior to its posterior at the null: Laplace's prediction against what is claimed."""
    return towards((seen.sums + 1) / (seen.t + 1), seen)[:, None]


def diversified(seen: Seen) -> Floats:
    return np.tile(np.arange(1, 21) / 21, (seen.sums.size, 1))


def hedged(most: float) -> Rule:
    def rule(seen: Seen) -> Floats:
        stake = np.sqrt(2 * log(2 / seen.alpha) / (seen.variance * seen.t * log(1 + seen.t)))
        return np.minimum(stake * seen.claimed, most)[:, None]

    return rule


def ratio_test(gap: float) -> Rule:
    """The sequential probability ratio test of the null against a truth that is ``gap`` better."""

    def rule(seen: Seen) -> Floats:
        left = (seen.null + gap) * N - seen.sums
        return np.clip(towards(np.clip(left / (N - seen.t + 1), 0, 1 - 1e-6), seen), 0, 1)[:, None]

    return rule


RIVALS: dict[str, Rule] = {
    **{f"ALPHA, d {d}, from midway": alpha_rule(d, lambda null: (1 + null) / 2) for d in (10, 100)},
    **{f"ALPHA, d {d}, from +.1": alpha_rule(d, lambda null: null + 0.1) for d in (10, 100)},
    "PPR": prior_posterior,
    "diversified Kelly": diversified,
    "hedged, c ½": hedged(0.5),
    "hedged, c ¾": hedged(0.75),
    "SPRT ±.05": ratio_test(0.05),
    "SPRT ±.2": ratio_test(0.2),
}


def crossings(rule: Rule, values: Floats, claimed_total: int, alpha: float) -> NDArray[np.int64]:
    """After how many documents each run's wealth reaches 1/α; N where it never does."""
    runs = values.shape[0]
    found, going = np.full(runs, N, dtype=np.int64), np.arange(runs)
    sums, spread = np.zeros(runs), np.full(runs, 0.25)
    wealths = np.ones((runs, 1))
    for t in range(1, N):
        x = values[going, t - 1]
        claimed = np.maximum((claimed_total - sums) / (N - t + 1), 1e-12)
        stakes = rule(Seen(t, sums, spread / t, claimed, claimed_total / N, alpha))
        with np.errstate(over="ignore"):
            wealths = wealths * np.maximum(1 + stakes * (x / claimed - 1)[:, None], 0.0)
        sums = sums + x
        spread = spread + (x - (0.5 + sums) / (t + 1)) ** 2
        decided = (wealths.mean(axis=1) >= 1 / alpha) | (sums > claimed_total)
        found[going[decided]] = t
        going, sums, spread, wealths = going[~decided], sums[~decided], spread[~decided], wealths[~decided]
        if not going.size:
            break
    return found


def documents(rule: Rule, orders: Floats, alpha: float) -> float:
    """Mean documents of a rule that bets on gains and on losses."""
    for_pass = crossings(rule, orders, NEEDED - 1, alpha)
    return float(np.minimum(for_pass, crossings(rule, 1 - orders, N - NEEDED, alpha)).mean())


def rivals(runs: int) -> str:
    header = ["true score", "α", "Assay", "best rival", "which", "ratio", "its worst row"]
    means: dict[tuple[str, float, float], float] = {}
    lines = []
    plan = threshold_plan(N, THRESHOLD, resolution=1)
    for truth in TRUTHS:
        right = np.repeat([1.0, 0.0], [round(truth * N), N - round(truth * N)])
        orders = np.random.default_rng(7).permuted(np.tile(right, (runs if truth else 1, 1)), axis=1)
        _, ours = decide_many(plan, orders, ALPHAS)
        for alpha, mean in zip(ALPHAS, ours.mean(axis=0).tolist(), strict=True):
            means["", truth, alpha] = mean
            means |= {(name, truth, alpha): documents(rule, orders, alpha) for name, rule in RIVALS.items()}
            print(truth, alpha, f"{mean:.1f}", file=sys.stderr, flush=True)
    best = {(truth, alpha): min(means[name, truth, alpha] for name in RIVALS) for truth in TRUTHS for alpha in ALPHAS}
    worst = {name: max(means[name, *row] / least for row, least in best.items()) for name in ("", *RIVALS)}
    for (truth, alpha), least in best.items():
        which = min(RIVALS, key=lambda name: means[name, truth, alpha])
        mean = means["", truth, alpha]
        cells = [f"{truth}", f"{100 * alpha:g} %", f"{mean:.1f}", f"{least:.1f}", which, f"{mean / least:.3f}"]
        lines.append([*cells, f"{worst[which]:.2f}"])
    return table(header, lines, first="---:")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="random orders a true score")
    parser.add_argument("--write", type=Path, help="page whose section is replaced; else it is printed")
    arguments = parser.parse_args()
    content = f"{rivals(arguments.runs)}\n\n{arguments.runs} random orders a true score."
    publish([("rivals", content)], arguments.write)


if __name__ == "__main__":
    main()
