"""Simulates the sequential tests and writes what docs/statistics.md says about them.

Every table is put between its markers in the page, so that the page never says anything that was not computed::

    python -m benchmarks.simulate_sequential --write docs/statistics.md --images docs/images/statistics

With ``--answers`` (or ASSAY_MODEL_OUTPUTS_DIR) it also decides on the recorded answers of four real models, and with
matplotlib installed it draws the plots. 10,000 random orders a setting take some 30 minutes
on one idle core, most of them for MMLU-Pro; ``--most-documents 24000000`` gives it 1994 orders and takes 8.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib import import_module
from itertools import permutations
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.stats.intervals import normal_quantile
from assay.stats.many import decide_many
from assay.stats.plans import Decision, SequentialPlan, margin_plan, threshold_plan
from assay.stats.power import required_n_for_margin
from assay.stats.sequential import confidence_sequence
from benchmarks.pages import publish, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ALPHAS = (0.05, 0.01, 0.001)
SIZES = {198: "GPQA Diamond", 541: "IFEval", 1319: "GSM8K", 12032: "MMLU-Pro"}
THRESHOLDS = (0.3, 0.435, 0.7, 0.95)
FLIPS = (0.0, 0.02, 0.05, 0.1, 0.2)
MARGIN = 0.03
EXAMPLE_N, EXAMPLE_THRESHOLD = 1319, 0.435
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
CHUNK_VALUES = 5_000_000
"""How many scores are held in memory at once."""
REAL_ORDERS = 2000
"""Orders in which each real model's answers are given."""


class Effort(NamedTuple):
    """How long to simulate."""

    runs: int
    most_documents: int | None

    def orders(self, n: int) -> int:
        """How many random orders of n documents one setting gets."""
        return self.runs if self.most_documents is None else min(self.runs, self.most_documents // n)


class Outcomes(NamedTuple):
    """What many random orders came to, at each of several error rates."""

    passed: NDArray[np.bool_]
    documents: NDArray[np.int64]
    truth: bool

    def wrong(self) -> list[float]:
        """Share of wrong decisions at each error rate."""
        return [float(share) for share in (self.passed != self.truth).mean(axis=0)]

    def mean_documents(self) -> list[float]:
        """How many documents a decision took, at each error rate."""
        return [float(mean) for mean in self.documents.mean(axis=0)]


def simulate(plan: SequentialPlan, scores: Floats, runs: int, alphas: tuple[float, ...] = ALPHAS) -> Outcomes:
    results = [decide_many(plan, orders, alphas) for orders in random_orders(scores, runs)]
    truth = plan.decide_exactly(scores, [1.0] * scores.size) is Decision.PASS
    return Outcomes(np.concatenate([p for p, _ in results]), np.concatenate([d for _, d in results]), truth)


def random_orders(scores: Floats, runs: int, seed: int = 2024) -> Iterator[Floats]:
    random = np.random.default_rng(seed)
    rows = max(1, CHUNK_VALUES // scores.size)
    for start in range(0, runs, rows):
        yield random.permuted(np.tile(scores, (min(rows, runs - start), 1)), axis=1)


def right_or_wrong(n: int, right: int) -> Floats:
    return np.repeat([1.0, 0.0], [right, n - right])


def differences(n: int, lost: float, gained: float) -> Floats:
    flips = [round(lost * n), round(gained * n)]
    return np.repeat([-1.0, 1.0, 0.0], [*flips, n - sum(flips)])


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def threshold_errors(effort: Effort) -> str:
    rows = []
    for n, name in SIZES.items():
        orders = effort.orders(n)
        for threshold in THRESHOLDS:
            needed = ceil(threshold * n)
            plan = threshold_plan(n, threshold, resolution=1)
            hardest = (needed, needed - 1)
            errors = np.array([simulate(plan, right_or_wrong(n, right), orders).wrong() for right in hardest])
            rows.append([f"{n} ({name})", f"{threshold}", *map(percent, errors.max(axis=0)), f"{orders}"])
            progress(rows[-1])
    return table(["N", "threshold", *error_headers()], rows)


def margin_errors(effort: Effort) -> str:
    rows = []
    for n, name in SIZES.items():
        orders = effort.orders(n)
        for flips in FLIPS:
            allowed = int(MARGIN * n) / n
            plan = margin_plan(n, MARGIN, resolution=1)
            errors = []
            for loss in (allowed, allowed + 1 / n, 0.0, 0.05, 0.13):
                share = max(flips, loss)
                errors.append(simulate(plan, differences(n, (share + loss) / 2, (share - loss) / 2), orders).wrong())
            rows.append([f"{n} ({name})", percent(flips), *map(percent, np.max(errors, axis=0)), f"{orders}"])
            progress(rows[-1])
    return table(["N", "flips", *error_headers()], rows)


def error_headers() -> list[str]:
    return [*(f"wrong at α = {percent(alpha)}" for alpha in ALPHAS), "orders"]


def threshold_documents(runs: int) -> str:
    n, threshold = EXAMPLE_N, EXAMPLE_THRESHOLD
    plan = threshold_plan(n, threshold, resolution=1)
    rows = []
    for score in (0.0, 0.05, 0.217, 0.335, 0.385, 0.415, 0.455, 0.485, 0.535, 0.635, 0.8, 1.0):
        outcomes = simulate(plan, right_or_wrong(n, round(score * n)), runs)
        row = [f"{score:.3f}", "pass" if outcomes.truth else "fail"]
        for alpha, mean in zip(ALPHAS, outcomes.mean_documents(), strict=True):
            row += [f"{mean:.1f}", f"{exact_fixed_size(n, threshold, round(score * n), alpha)}"]
        rows.append(row)
        progress(row)
    return table(["true score", "verdict", *double_headers()], rows)


def exact_fixed_size(n: int, threshold: float, right: int, alpha: float) -> int:
    """The least sample size at which an exact (hypergeometric) test is wrong at most alpha of the time, either way.

    Args:
        n: Documents of the benchmark.
        threshold: To be told from the score.
        right: How many documents the model answers right.
        alpha: Error rate on both sides.
    """
    hypergeometric = import_module("scipy.stats").hypergeom
    needed, sizes = ceil(threshold * n), np.arange(1, n + 1)
    if right >= needed:
        critical = hypergeometric.isf(alpha, n, needed - 1, sizes)
        power = hypergeometric.sf(critical, n, right, sizes)
    else:
        critical = hypergeometric.isf(alpha, n, n - needed, sizes)
        power = hypergeometric.sf(critical, n, n - right, sizes)
    return int(sizes[np.argmax(power >= 1 - alpha)])


def margin_documents(runs: int) -> str:
    n = EXAMPLE_N
    plan = margin_plan(n, MARGIN, resolution=1)
    rows = []
    for lost, gained in (
        (0.0, 0.0), (0.01, 0.01), (0.025, 0.025), (0.05, 0.05), (0.1, 0.1), (0.04, 0.06),
        (0.10, 0.05), (0.15, 0.02), (0.165, 0.035), (0.13, 0.0), (0.43, 0.0),
    ):  # fmt: skip
        outcomes = simulate(plan, differences(n, lost, gained), runs)
        row = [percent(lost), percent(gained), "pass" if outcomes.truth else "fail"]
        for alpha, mean in zip(ALPHAS, outcomes.mean_documents(), strict=True):
            fixed = required_n_for_margin(
                MARGIN, lost + gained, difference=gained - lost, alpha=alpha, power=1 - alpha, population=n
            )
            row += [f"{mean:.1f}", f"{fixed}"]
        rows.append(row)
        progress(row)
    return table(["lost", "gained", "verdict", *double_headers()], rows)


def double_headers() -> list[str]:
    return [name for alpha in ALPHAS for name in (f"α = {percent(alpha)}: mean", "fixed")]


def peeking_path(n: int, threshold: float, alpha: float, runs: int) -> tuple[Floats, Floats]:
    """Share of wrong passes up to each document by peeking at a z-test and by the sequential test.

    The score is one document short of the threshold. The z-test looks from the tenth document on.
    """
    plan = threshold_plan(n, threshold, resolution=1)
    scores = right_or_wrong(n, ceil(threshold * n) - 1)
    peeking, sequential = np.zeros(n), np.zeros(n)
    t = np.arange(1, n + 1)
    for orders in random_orders(scores, runs):
        z = (np.cumsum(orders, axis=1) / t - threshold) / np.sqrt(threshold * (1 - threshold) / t)
        crossed = (z >= normal_quantile(1 - alpha)) & (t >= 10)
        peeking += np.maximum.accumulate(crossed, axis=1).sum(axis=0)
        passed, documents = decide_many(plan, orders, (alpha,))
        sequential += np.cumsum(np.bincount(documents[passed] - 1, minlength=n))
    return peeking / runs, sequential / runs


def peeking_errors(effort: Effort) -> str:
    rows = []
    for n, name in SIZES.items():
        row = [f"{n} ({name})"]
        for alpha in ALPHAS:
            peeking, sequential = peeking_path(n, EXAMPLE_THRESHOLD, alpha, effort.orders(n))
            row += [percent(peeking[-1]), percent(sequential[-1])]
        rows.append([*row, f"{effort.orders(n)}"])
        progress(row)
    header = [name for alpha in ALPHAS for name in (f"α = {percent(alpha)}: peeking", "sequential")]
    return table(["N", *header, "orders"], rows)


def real_answers(folder: Path) -> dict[str, Floats]:
    lines = (folder / "gsm8k" / "openai_example_model_solutions.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return {model: np.array([float(record[model]["is_correct"]) for record in records]) for model in MODELS}


def real_thresholds(answers: dict[str, Floats], runs: int) -> str:
    rows = []
    for model, scores in answers.items():
        n = scores.size
        for points in (-10, -5, -2, 2, 5, 10):
            threshold = float(np.clip(scores.mean() + points / 100, 0, 1))
            outcomes = simulate(threshold_plan(n, threshold, resolution=1), scores, runs)
            rows.append([f"{model} ({scores.mean():.3f})", f"{threshold:.3f} ({points:+d})", *decisions(outcomes, n)])
        progress(rows[-1])
    return table(["model (score)", "threshold", *decision_headers()], rows)


def real_pairs(answers: dict[str, Floats], runs: int) -> str:
    rows = []
    for baseline, candidate in permutations(answers, 2):
        d = answers[candidate] - answers[baseline]
        outcomes = simulate(margin_plan(d.size, MARGIN, resolution=1), d, runs)
        flips = f"{percent((d < 0).mean())} / {percent((d > 0).mean())}"
        rows.append([f"{baseline} → {candidate}", f"{100 * d.mean():+.1f}", flips, *decisions(outcomes, d.size)])
        progress(rows[-1])
    return table(["baseline → candidate", "difference", "lost / gained", *decision_headers()], rows)


def decisions(outcomes: Outcomes, n: int) -> list[str]:
    _, wrong, _ = outcomes.wrong()
    _, mean, _ = outcomes.mean_documents()
    return ["pass" if outcomes.truth else "fail", percent(wrong), f"{mean:.0f}", f"{100 * (1 - mean / n):.0f} %"]


def decision_headers() -> list[str]:
    return ["verdict", "wrong at α = 1 %", "mean documents", "saved"]


def draw(folder: Path, runs: int) -> None:
    mpl = import_module("matplotlib")  # an optional tool, not a dependency
    mpl.use("svg")
    plt = import_module("matplotlib.pyplot")
    mpl.rcParams.update(
        {"svg.hashsalt": "assay", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, plot in (
        ("confidence_sequence", draw_confidence_sequence),
        ("documents_needed", draw_documents_needed),
        ("peeking", draw_peeking),
    ):
        figure, axes = plt.subplots(figsize=(7, 3.6))
        plot(axes, runs)
        axes.legend(frameon=False)
        figure.tight_layout()
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


def draw_confidence_sequence(axes: Any, _runs: int) -> None:
    n, threshold = EXAMPLE_N, EXAMPLE_THRESHOLD
    for score, colour, label, below in ((0.535, "tab:green", "healthy", 6), (0.3, "tab:red", "broken", -14)):
        order = next(random_orders(right_or_wrong(n, round(score * n)), 1, seed=1))[0]
        low, high = confidence_sequence(threshold_plan(n, threshold, 0.01), order.tolist())
        t = np.arange(1, n + 1)
        kept = np.unique(np.concatenate([t[:60], t[60::8], t[-1:]])) - 1
        axes.fill_between(t[kept], low[kept], high[kept], color=colour, alpha=0.25, lw=0)
        axes.plot(t[kept], (np.cumsum(order) / t)[kept], color=colour, lw=1, label=f"{label}: true score {score}")
        decided = int(np.argmax((low >= threshold) | (high < threshold)))
        axes.plot(decided + 1, threshold, "o", color=colour)
        axes.annotate(f"decided after {decided + 1}", (decided + 1, threshold), (8, below), textcoords="offset points")
    axes.axhline(threshold, color="black", lw=1, ls="--")
    axes.set(xlabel="documents seen", ylabel="score", ylim=(0, 1), xlim=(0, n))


def draw_documents_needed(axes: Any, runs: int) -> None:
    n, threshold = EXAMPLE_N, EXAMPLE_THRESHOLD
    plan = threshold_plan(n, threshold, resolution=1)
    scores = np.concatenate([np.linspace(0, 0.4, 9), np.linspace(0.41, 0.46, 6), np.linspace(0.48, 1, 12)])
    means = [simulate(plan, right_or_wrong(n, round(s * n)), max(runs // 20, 50)).mean_documents() for s in scores]
    for index, (alpha, colour) in enumerate(zip(ALPHAS, ("tab:blue", "tab:orange", "tab:purple"), strict=True)):
        axes.plot(scores, [mean[index] for mean in means], color=colour, label=f"sequential, α = {percent(alpha)}")
        fixed = [exact_fixed_size(n, threshold, round(float(s) * n), alpha) for s in scores]
        axes.plot(scores, fixed, color=colour, ls=":", label="fixed size planned for this score" if not index else None)
    axes.axvline(threshold, color="black", lw=1, ls="--")
    axes.set(xlabel="true score", ylabel="documents needed (mean)", yscale="log", xlim=(0, 1))


def draw_peeking(axes: Any, runs: int) -> None:
    peeking, sequential = peeking_path(EXAMPLE_N, EXAMPLE_THRESHOLD, 0.01, runs)
    t = np.arange(1, EXAMPLE_N + 1)
    kept = np.unique(np.concatenate([t[:100], t[100::8], t[-1:]])) - 1
    axes.plot(t[kept], 100 * peeking[kept], color="tab:red", label="looking at a z-test after every document")
    axes.plot(t[kept], 100 * sequential[kept], color="tab:green", label="sequential test")
    axes.axhline(1, color="black", lw=1, ls="--", label="promised: at most 1 %")
    axes.set(xlabel="documents seen", ylabel="wrong passes so far (%)", xlim=(0, EXAMPLE_N), ylim=(0, None))


def progress(row: list[str]) -> None:
    print(f"{time.process_time():7.0f} s  {'  '.join(row)}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="random orders a setting")
    parser.add_argument("--most-documents", type=int, help="cap on the documents of a setting's orders together")
    parser.add_argument("--write", type=Path, help="page whose sections are replaced; else they are printed")
    parser.add_argument("--images", type=Path, help="folder for the plots")
    parser.add_argument("--answers", type=Path, default=os.environ.get("ASSAY_MODEL_OUTPUTS_DIR"))
    parser.add_argument("--only", help="names of sections, separated by commas; 'plots' is one")
    arguments = parser.parse_args()
    effort = Effort(arguments.runs, arguments.most_documents)

    sections: dict[str, Callable[[], str]] = {
        "threshold-documents": lambda: threshold_documents(arguments.runs),
        "margin-documents": lambda: margin_documents(arguments.runs),
        "peeking": lambda: peeking_errors(effort),
        "margin-errors": lambda: margin_errors(effort),
        "threshold-errors": lambda: threshold_errors(effort),
    }
    if arguments.answers:
        answers = real_answers(Path(arguments.answers))
        sections["real-thresholds"] = lambda: real_thresholds(answers, min(arguments.runs, REAL_ORDERS))
        sections["real-pairs"] = lambda: real_pairs(answers, min(arguments.runs, REAL_ORDERS))
    wanted = arguments.only.split(",") if arguments.only else [*sections, "plots"]
    publish(((name, compute()) for name, compute in sections.items() if name in wanted), arguments.write)
    if arguments.images and "plots" in wanted:
        draw(arguments.images, arguments.runs)


if __name__ == "__main__":
    main()
