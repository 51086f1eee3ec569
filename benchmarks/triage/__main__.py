"""Plant every fault of the matrix in every task, and count what triage says first.

    python -m benchmarks.triage --part development [--tasks gsm8k,bbh] [--strengths 3] [--sample 60] [--jobs 2]

Data sets are read from ``ASSAY_DATA_DIR``. A cell is held out if its task or its form is; of held-out cells only the
figures are printed, so that nobody develops on them.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.pages import publish, table
from benchmarks.triage.documents import KINDS
from benchmarks.triage.matrix import Bench, Cell, Healthy, Judgement, Part, Result, cells
from benchmarks.triage.real_answers import real_answers

_Found = tuple[list[Result], list[Healthy]]


def of_task(name: str, parts: Sequence[Part], wanted: Sequence[Cell], documents: int) -> _Found:
    """Cells of one task, and its healthy pairs."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench.of(name, Path(folder), documents)
        results = [result for cell in wanted for result in bench.results(cell)]
        return results, [pair for pair in bench.healthy_pairs() if pair.part in parts]


def figures(results: Sequence[Result], pairs: Sequence[Healthy]) -> str:
    """How often each judgement was given, by part, with and without a baseline."""
    rows = []
    for part in Part:
        for has_baseline in (True, False):
            mine = [each for each in results if each.cell.part is part and each.has_baseline is has_baseline]
            alarms = [each.is_false_alarm for each in pairs if each.part is part and each.has_baseline is has_baseline]
            if mine:
                count = Counter(each.judgement for each in mine)
                shares = [f"{count[each]} ({count[each] / len(mine):.0%})" for each in Judgement]
                how = "with" if has_baseline else "without"
                rows.append([part.value, how, str(len(mine)), *shares, f"{sum(alarms)} of {len(alarms)}"])
    return table(["part", "baseline", "cells", *(each.value for each in Judgement), "false alarms"], rows)


def confusion(results: Sequence[Result]) -> str:
    """By fault and part, what was said first and how often."""
    rows = []
    for part in Part:
        mine = [each for each in results if each.cell.part is part]
        for fault in dict.fromkeys(each.cell.fault.name for each in mine):
            row = [part.value, fault]
            for has_baseline in (True, False):
                of_fault = [each for each in mine if each.cell.fault.name == fault]
                said = Counter(each.said or "none" for each in of_fault if each.has_baseline is has_baseline)
                row.append(", ".join(f"{cause} {count}" for cause, count in said.most_common()))
            rows.append(row)
    return table(["part", "fault", "said with a baseline", "said without"], rows)


def main() -> None:
    """Run the matrix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=[*(part.value for part in Part), "both"], default="development")
    parser.add_argument("--tasks", default=",".join(KINDS))
    parser.add_argument("--strengths", type=int, default=3, choices=(1, 2, 3))
    parser.add_argument("--sample", type=int, help="so many cells of each part, drawn once and for all")
    parser.add_argument("--documents", type=int, default=120, help="documents a task")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--held-out-details", action="store_true", help="print held-out cells, too")
    parser.add_argument("--write", type=Path, help="page whose sections are replaced")
    parser.add_argument("--model-outputs", type=Path, help="published answers of real models, as healthy runs")
    parser.add_argument("--quiet", action="store_true", help="print no cells")
    options = parser.parse_args()
    parts = list(Part) if options.part == "both" else [Part(options.part)]
    tasks = tuple(options.tasks.split(","))
    wanted = [cell for part in parts for cell in cells(part, tasks, options.strengths, options.sample)]
    names = [name for name in tasks if any(cell.task == name for cell in wanted)]
    results: list[Result] = []
    pairs: list[Healthy] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        by_task = {name: [cell for cell in wanted if cell.task == name] for name in names}
        work = [pool.submit(of_task, name, parts, by_task[name], options.documents) for name in names]
        for each in work:
            more, healthy = each.result()
            results += more
            pairs += healthy
    if options.model_outputs:
        with tempfile.TemporaryDirectory() as folder:
            pairs += [each for each in real_answers(options.model_outputs, Path(folder)) if each.part in parts]
    if not options.quiet:
        _print_details(results, pairs, shown=list(Part) if options.held_out_details else [Part.DEVELOPMENT])
    publish([("triage-figures", figures(results, pairs)), ("triage-confusion", confusion(results))], options.write)


def _print_details(results: Sequence[Result], pairs: Sequence[Healthy], shown: Sequence[Part]) -> None:
    for each in results:
        if each.cell.part in shown and each.judgement not in (Judgement.RIGHT, Judgement.HONEST):
            cell, how = each.cell, "with" if each.has_baseline else "without"
            place = f"{cell.task}, {cell.fault.name}, {cell.strength + 1} of 3, {how} baseline, loss {each.loss:.2f}"
            print(f"{each.judgement.value:7} {place}: {each.headline}")
    for pair in pairs:
        if pair.part in shown and pair.is_false_alarm:
            print(f"alarm   {pair.task}, {pair.name}, baseline {pair.has_baseline}: {pair.headline}")


if __name__ == "__main__":
    main()
