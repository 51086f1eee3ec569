"""How often a healthy server fails the margin that ``assay calibrate`` proposes for it.

For each setting a server is calibrated many times, each time with other answers, and each time many pairs of a baseline
and a candidate of the same server are drawn. The page gets the table of the rates::

    python -m benchmarks.simulate_margins --write docs/statistics.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from assay.gate.calibrate import CONFIDENCE, proposed_margin
from assay.stats.rerun import Reruns, rerun_noise
from benchmarks.pages import publish

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Draw = Callable[[np.random.Generator, int, int], Floats]
    """From documents and runs to scores, of shape (documents, runs), for documents drawn anew at every call."""

RUNS = 3
"""Of a calibration, as ``assay calibrate`` makes them unless told otherwise."""


class Setting(NamedTuple):
    """A group of subtasks that weigh alike, and how its documents' scores vary from run to run."""

    name: str
    sizes: tuple[int, ...]
    draw: Draw
    noise: str


class Rates(NamedTuple):
    """What became of one setting."""

    failed: float
    """Share of gates that a healthy server failed."""
    margin: float
    """Median of the proposed margins."""
    before: float
    """Share that it failed with 3·√(flips/n), which knows no weights."""


def flipping(share: float) -> Draw:
    """Right-or-wrong scores of which this share changes from one run to the next, in documents that are toss-ups."""

    def draw(random: np.random.Generator, documents: int, runs: int) -> Floats:
        sure = random.integers(0, 2, (documents, 1)).astype(np.float64)
        toss = random.integers(0, 2, (documents, runs)).astype(np.float64)
        return np.where(random.random((documents, 1)) < 2 * share, toss, sure)

    return draw


def unbounded(share: float, mean: float = 2.0) -> Draw:
    """Scores with a long tail about ``mean``, of which this share is drawn anew in every run."""

    def draw(random: np.random.Generator, documents: int, runs: int) -> Floats:
        sure = random.exponential(mean, (documents, 1))
        return np.where(random.random((documents, 1)) < share, random.exponential(mean, (documents, runs)), sure)

    return draw


SETTINGS = tuple(
    Setting(" / ".join(map(str, sizes)), sizes, draw, noise)
    for sizes in ((5, 1000), (20, 50, 200, 1000), (1319,))
    for draw, noise in (
        *((flipping(share), f"{share:g} flip") for share in (0.005, 0.02, 0.05, 0.1)),
        (unbounded(0.1), "unbounded, 0.1 vary"),
        (unbounded(1.0), "unbounded, all vary"),
    )
)


def simulate(setting: Setting, calibrations: int, gates: int, seed: int = 0) -> Rates:
    """Calibrate so many times, and hold so many further pairs of runs of the same server to each margin."""
    random = np.random.default_rng(seed)
    failed, failed_before, margins = [], [], []
    for _ in range(calibrations):
        answers = [setting.draw(random, size, RUNS + 2 * gates) for size in setting.sizes]
        seen = [each[:, :RUNS] for each in answers]
        noise = rerun_noise([Reruns(each, 1.0, len(each)) for each in seen], CONFIDENCE)
        margin = proposed_margin(noise.at_most, noise.one_answer)
        means = np.mean([each[:, RUNS:].mean(axis=0) for each in answers], axis=0)
        losses = means[:gates] - means[gates:]
        failed.append((losses > margin + 1e-9).mean())
        margins.append(margin)
        together = np.vstack(seen)
        flips = (together[:, 1:] != together[:, :-1]).mean()
        failed_before.append((losses > 3 * np.sqrt(flips / sum(setting.sizes)) + 1e-9).mean())
    return Rates(float(np.mean(failed)), float(np.median(margins)), float(np.mean(failed_before)))


def table(calibrations: int, gates: int) -> list[str]:
    """The page's table."""
    lines = [
        "| documents, subtasks weigh alike | noise | median margin | fails its own margin | fails 3·√(flips/n) |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for setting in SETTINGS:
        rates = simulate(setting, calibrations, gates)
        lines.append(
            f"| {setting.name} | {setting.noise} | {rates.margin:.2g} | {100 * rates.failed:.2g} % | "
            f"{100 * rates.before:.2g} % |"
        )
        print(lines[-1], file=sys.stderr)
    return lines


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrations", type=int, default=1000)
    parser.add_argument("--gates", type=int, default=100, help="pairs of runs for each calibration")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    lines = table(arguments.calibrations, arguments.gates)
    publish([("own-margins", "\n".join(lines))], arguments.write)


if __name__ == "__main__":
    main()
